"""Step: where this is: GPU, driver, clocks, versions; and that kernels can be run at all."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from gpu_call.kit import unpacked_kit
from gpu_call.step import Call, find_tool, run_step
from tinygpu.devices import device
from tinygpu.ptx.measuring.clocks import Clocks
from tinygpu.ptx.runtime.calls import gpu_driver, load_driver
from tinygpu.ptx.runtime.context import Limits, open_context
from tinygpu.ptx.runtime.errors import GpuUnavailable

PACKAGES = ("numpy", "cuda-bindings", "torch", "triton", "cupy-cuda13x", "jax", "pytest", "hypothesis")
TOOLS = {"nvcc": ["--version"], "ncu": ["--version"], "compute-sanitizer": ["--version"]}
_ASKED = (
    "name,driver_version,vbios_version,pstate,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.draw,power.limit,"
    "temperature.gpu,ecc.mode.current,persistence_mode,mig.mode.current"
)


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def release(text: str) -> str:
    """The numbers of a kernel's release: what follows names whose build it is.

    >>> release("6.8.0-41-generic")
    '6.8.0'
    """
    numbers = re.match(r"[\d.]*", text)
    return numbers[0].rstrip(".") if numbers else ""


def last_line(command: list[str]) -> str | None:
    """The last line that a tool prints; None where it is not here."""
    tool = find_tool(command[0])
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[-1].strip() if lines else None


def environment(call: Call) -> Mapping[str, Any]:
    kit = unpacked_kit(call.kit)
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "kit": kit.made, "made_for": kit.device,
        "assembler": kit.assembler, "kernels": sum(j.kernels for j in kit.jobs),
        "missing": [list(m) for m in kit.missing],
        "python": sys.version.split()[0], "kernel": release(platform.release()), "rehearsal": call.rehearsal,
        "packages": {name: version_of(name) for name in PACKAGES},
        "tools": {name: last_line([name, *words]) for name, words in TOOLS.items()},
        "nvidia_smi": last_line(["nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader"]),
        "nvidia_smi_fields": _ASKED,
    }  # fmt: skip
    call.tell(found)
    try:
        driver = load_driver(call.driver) if call.rehearsal else gpu_driver()
        limits = open_context(driver).limits
    except GpuUnavailable as missing:
        return {**found, "stop": str(missing)}
    found |= {"gpu": asdict(limits), "clocks": Clocks(limits.bus).read(), "other_gpu": other_gpu(kit.device, limits)}
    return found


def other_gpu(made_for: str, limits: Limits) -> str:
    """That the kernels were chosen for another GPU than this one, as a sentence; "" where they were not."""
    try:
        here = device(limits.name).name
    except ValueError:
        here = ""
    if here == made_for:
        return ""
    named = f", which the library knows as {here}" if here else ", which the library does not know"
    return f"kernels were chosen for {made_for}, and this is {limits.name}{named}"


if __name__ == "__main__":
    sys.exit(run_step(environment))
