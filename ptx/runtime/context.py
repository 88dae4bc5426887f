"""One GPU, ready to use: its primary context, its limits, and its memory.

The primary context is the one that PyTorch, CuPy, JAX and the CUDA runtime use, so that their arrays and streams are
also ours.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.runtime.calls import Driver, out_of_memory
from tinygpu.ptx.runtime.errors import CudaError, GpuUnavailable
from tinygpu.ptx.runtime.launch import Workspace

# Byte of memory whose contents nobody may rely on: NaN in every float type, conspicuous in integers.
POISON = 0xFF
# What is asked of the driver when a context is opened, by field.
_ATTRIBUTES = {
    "major": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
    "minor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
    "sms": "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT",
    "l2_bytes": "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE",
    "smem_bytes": "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "threads": "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK",
    "cooperative": "CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the driver says of a GPU.

    name          "NVIDIA H200"
    major, minor  compute capability
    smem_bytes    shared memory that one CTA can have, static and dynamic together
    threads       per CTA
    driver        version of the driver: "13.0"
    bus           PCI bus id, by which the management library knows it
    """

    ordinal: int
    name: str
    major: int
    minor: int
    sms: int
    l2_bytes: int
    smem_bytes: int
    threads: int
    memory_bytes: int
    cooperative: bool
    driver: str
    bus: str

    @property
    def cc(self) -> int:
        """Compute capability as one number: 90."""
        return self.major * 10 + self.minor

    @property
    def architecture(self) -> str:
        """The architecture without suffix: "sm_90"."""
        return f"sm_{self.cc}"


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A GPU in use by this process."""

    driver: Driver
    limits: Limits
    handle: Any

    def make_current(self) -> None:
        """For the calling thread: what follows happens on this GPU."""
        self.driver.call("cuCtxSetCurrent", self.handle)

    def synchronize(self) -> None:
        """Waits until everything that was launched has ended; raises CudaError for a kernel that faulted."""
        self.driver.call("cuCtxSynchronize")

    def free_bytes(self) -> int:
        return int(self.driver.call("cuMemGetInfo")[0])

    def allocate(self, bytes_: int, what: str = "an array") -> Memory:
        """Fresh device memory, aligned to 256 bytes. Raises OutOfDeviceMemory."""
        size = max(bytes_, 1)
        try:
            address = int(self.driver.call("cuMemAlloc", size))
        except CudaError as refused:
            if refused.code == "CUDA_ERROR_OUT_OF_MEMORY":
                raise out_of_memory(self.driver, size, what) from None
            raise
        return Memory(self, address, size)


class Workspaces:
    """What launches on one stream need beside their tensors; kept, and grown when a launch needs more."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._kept: dict[tuple[str, bool], Memory] = {}

    def memory(self, wanted: Workspace) -> Memory:
        """Memory for a workspace, as a launch expects it."""
        key = (wanted.name, wanted.zeroed)
        found = self._kept.get(key)
        if found is None or found.size_bytes < wanted.bytes:
            found = self._kept[key] = self.context.allocate(wanted.bytes, f"the workspace {wanted.name}")
            self.clear(wanted)
        return found

    def clear(self, wanted: Workspace) -> None:
        """As before the first launch: zeros, or poison where a kernel relies on nothing. Waits."""
        self._kept[wanted.name, wanted.zeroed].fill(0 if wanted.zeroed else POISON)
        self.context.synchronize()


class Memory:
    """Device memory of our own; freed with the object, or by `free`.

    address  of its first byte
    """

    __slots__ = ("address", "context", "size_bytes")

    def __init__(self, context: Context, address: int, size_bytes: int) -> None:
        self.context = context
        self.address = address
        self.size_bytes = size_bytes

    def write(self, array: NDArray[Any], offset_bytes: int = 0) -> None:
        """Copies a contiguous host array here."""
        self._within(offset_bytes, array.nbytes)
        source = np.ascontiguousarray(array)
        self.context.driver.call("cuMemcpyHtoD", self.address + offset_bytes, source.ctypes.data, source.nbytes)

    def read(self, offset_bytes: int = 0, size_bytes: int | None = None) -> NDArray[np.uint8]:
        """(size_bytes) the bytes from an offset on, on the host."""
        count = self.size_bytes - offset_bytes if size_bytes is None else size_bytes
        self._within(offset_bytes, count)
        out = np.empty(count, dtype=np.uint8)
        self.context.driver.call("cuMemcpyDtoH", out.ctypes.data, self.address + offset_bytes, count)
        return out

    def fill(self, byte: int) -> None:
        """Every byte becomes `byte`."""
        self.context.driver.call("cuMemsetD8", self.address, byte, self.size_bytes)

    def copy_from(self, other: Memory) -> None:
        """Copies all of another memory of the same size, on the device."""
        if other.size_bytes != self.size_bytes:
            raise ValueError(f"memory of {self.size_bytes:,} B does not take the {other.size_bytes:,} B of another")
        self.context.driver.call("cuMemcpyDtoD", self.address, other.address, self.size_bytes)

    def free(self) -> None:
        if self.address:
            address, self.address = self.address, 0
            self.context.driver.release("cuMemFree", address)

    def __del__(self) -> None:
        with suppress(Exception):  # the context, or the interpreter, may be going down, and the memory with it
            self.free()

    def _within(self, offset_bytes: int, count: int) -> None:
        if offset_bytes < 0 or offset_bytes + count > self.size_bytes:
            raise ValueError(
                f"{count:,} B from byte {offset_bytes:,} on are not within memory of {self.size_bytes:,} B"
            )


def open_context(driver: Driver, ordinal: int = 0) -> Context:
    """The GPU with a number, current in this thread. Raises GpuUnavailable where there is none."""
    count = int(driver.call("cuDeviceGetCount"))
    if not 0 <= ordinal < count:
        found = f"{count} GPU{'' if count == 1 else 's'}"
        raise GpuUnavailable(f"there is no GPU number {ordinal}: the driver sees {found}, numbered from 0")
    device = driver.call("cuDeviceGet", ordinal)
    numbers = {
        field: int(driver.call("cuDeviceGetAttribute", driver.enum("CUdevice_attribute", name), device))
        for field, name in _ATTRIBUTES.items()
    }
    version = int(driver.call("cuDriverGetVersion"))
    limits = Limits(
        ordinal=ordinal,
        name=_text(driver.call("cuDeviceGetName", 256, device)),
        memory_bytes=int(driver.call("cuDeviceTotalMem", device)),
        driver=f"{version // 1000}.{version % 1000 // 10}",
        bus=_text(driver.call("cuDeviceGetPCIBusId", 64, device)),
        cooperative=bool(numbers.pop("cooperative")),
        **numbers,
    )
    context = Context(driver, limits, driver.call("cuDevicePrimaryCtxRetain", device))
    context.make_current()
    return context


def _text(data: bytes) -> str:
    return data.split(b"\0")[0].decode()
