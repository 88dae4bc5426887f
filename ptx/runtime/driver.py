"""Is there a CUDA driver with a GPU here? Asked once, in one place, before anything else touches the driver.

A machine without a driver is told at once, by looking for the library. Where there is one, a child process asks it:
a driver that is broken can hang or bring its process down, and then costs the child, never the caller.

This is the seam for loading, launching and timing: whatever runs kernels asks `available()` first and takes its GPUs
from the answer.
"""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess
import sys
from dataclasses import dataclass

# The driver's library comes with the driver, not with a wheel.
_LIBRARIES = {"win32": "nvcuda.dll"}
_LIBRARY = _LIBRARIES.get(sys.platform, "libcuda.so.1")
_TIMEOUT_SECONDS = 60.0

# Runs in the child; one line of JSON.
_PROBE = """
import json
from cuda.bindings import driver

def call(function, *arguments):
    status, *values = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__} returned {status.name}")
    return values[0] if values else None

def attribute(device, name):
    return call(driver.cuDeviceGetAttribute, getattr(driver.CUdevice_attribute, name), device)

try:
    call(driver.cuInit, 0)
    gpus = []
    for ordinal in range(call(driver.cuDeviceGetCount)):
        device = call(driver.cuDeviceGet, ordinal)
        major = attribute(device, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR")
        minor = attribute(device, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR")
        name = call(driver.cuDeviceGetName, 256, device).split(b"\\0")[0].decode()
        gpus.append({"ordinal": ordinal, "name": name, "compute_capability": [major, minor]})
    print(json.dumps({"version": call(driver.cuDriverGetVersion), "gpus": gpus}))
except Exception as error:
    print(json.dumps({"error": str(error)}))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that the driver sees.

    ordinal             the driver's number for it, from 0
    name                the driver's name for it: "NVIDIA H200"
    compute_capability  major and minor: (9, 0)
    """

    ordinal: int
    name: str
    compute_capability: tuple[int, int]

    @property
    def architecture(self) -> str:
        """The architecture that it runs, without "a" or "f": "sm_90"."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """What the probe found.

    present  true where kernels can be loaded and run
    reason   one sentence: what is here, or what is missing
    gpus     the GPUs, in the driver's order
    """

    present: bool
    reason: str
    gpus: tuple[Gpu, ...] = ()


@functools.cache
def available() -> DriverStatus:
    """Whether kernels can run here; never raises, never hangs, and asks only once."""
    return probe(_LIBRARY, _PROBE, _TIMEOUT_SECONDS)


def probe(library: str, program: str, timeout_seconds: float) -> DriverStatus:
    """What the driver `library` answers to `program`, run by a child process within `timeout_seconds`."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return DriverStatus(False, f"no CUDA driver: {library} is not installed")
    try:
        child = subprocess.run(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        return DriverStatus(False, f"the CUDA driver did not answer within {timeout_seconds:g} s")
    if child.returncode != 0:
        why = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return DriverStatus(False, f"asking the CUDA driver ended with code {child.returncode}: {why}")
    try:
        # a driver may print lines of its own before the answer
        answer = json.loads((child.stdout.splitlines() or [""])[-1])
    except json.JSONDecodeError:
        return DriverStatus(False, f"asking the CUDA driver gave {child.stdout!r} instead of an answer")
    if "error" in answer:
        return DriverStatus(False, f"the CUDA driver is installed but does not work: {answer['error']}")
    gpus = tuple(Gpu(gpu["ordinal"], gpu["name"], tuple(gpu["compute_capability"])) for gpu in answer["gpus"])
    version = f"CUDA driver {answer['version'] // 1000}.{answer['version'] % 1000 // 10}"
    if not gpus:
        return DriverStatus(False, f"{version} sees no GPU")
    return DriverStatus(True, f"{version} with {', '.join(gpu.name for gpu in gpus)}", gpus)
