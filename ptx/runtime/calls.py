"""The driver's functions: the module that has them, loaded when asked for, and calls that raise what they return."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from tinygpu.ptx.runtime.driver import available
from tinygpu.ptx.runtime.errors import CudaError, GpuUnavailable, OutOfDeviceMemory

BINDINGS = "cuda.bindings.driver"


@dataclass(frozen=True, slots=True, eq=False)
class Driver:
    """A module with the functions, enumerations and structures of the driver API, as cuda.bindings.driver has them.

    >>> Driver(module).call("cuDeviceGetCount")   # doctest: +SKIP
    1
    """

    module: Any

    def call(self, function: str, *arguments: Any) -> Any:
        """What the function gives beside its status: nothing, one value, or a tuple. Raises CudaError."""
        status, *values = getattr(self.module, function)(*arguments)
        if status:
            raise CudaError(function, self.code(status))
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)

    def release(self, function: str, handle: Any) -> None:
        """Gives something back; after a fault, when nothing can be given back any more, without a word."""
        try:
            self.call(function, handle)
        except CudaError as error:
            if not error.context_lost:
                raise

    def code(self, status: Any) -> str:
        """The name of a status."""
        return str(getattr(status, "name", status))

    def enum(self, kind: str, name: str) -> Any:
        """A value of one of the driver's enumerations: ("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_...")."""
        return getattr(getattr(self.module, kind), name)


def load_driver(module: str = BINDINGS) -> Driver:
    """The driver's functions in this process, initialised; a broken driver can hang here, so a caller asks first.

    Raises GpuUnavailable without the bindings, the driver, or a GPU.
    """
    try:
        driver = Driver(importlib.import_module(module))
    except ImportError as missing:
        raise GpuUnavailable(f"running kernels needs the package cuda-bindings: {missing}") from missing
    try:
        driver.call("cuInit", 0)
    except CudaError as refused:
        raise GpuUnavailable(f"the CUDA driver is installed but does not work: {refused}") from refused
    except Exception as missing:  # the loader of the library has errors of its own
        sentence = str(missing).splitlines()[0] if str(missing) else type(missing).__name__
        raise GpuUnavailable(f"there is no CUDA driver: {sentence}") from missing
    return driver


def gpu_driver() -> Driver:
    """The driver's functions, after a child process has found that they answer."""
    status = available()
    if not status.present:
        raise GpuUnavailable(f"no kernel can be run here: {status.reason}")
    return load_driver()


def out_of_memory(driver: Driver, bytes_: int, what: str) -> OutOfDeviceMemory:
    """The sentence for an allocation that failed."""
    free, total = driver.call("cuMemGetInfo")
    return OutOfDeviceMemory(
        f"{what} needs {bytes_:,} B of GPU memory, and {free:,} B of {total:,} B are free; "
        "free arrays of other libraries, or use a smaller problem"
    )
