"""What running a kernel on a GPU can be refused with, or end in."""

from __future__ import annotations

# CUDA driver API, CUresult: after one of these the context is lost, and with it the process's use of the GPU.
CONTEXT_LOST = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_CONTAINED", "CUDA_ERROR_EXTERNAL_DEVICE", "CUDA_ERROR_UNKNOWN",
    }
)  # fmt: skip

_MEANINGS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel touched memory that is not its own",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel touched memory at an address that the access does not allow",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel ran what the GPU does not have, or a descriptor is wrong",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel ended with a fault",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran longer than the system allows",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "a CTA of this kernel does not fit on an SM",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "the grid of a cooperative launch is not resident as a whole",
    "CUDA_ERROR_INVALID_PTX": "the driver does not take this PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the PTX is of a later version than the driver knows",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was made for another architecture",
    "CUDA_ERROR_OUT_OF_MEMORY": "the GPU's memory is used up",
}


class GpuUnavailable(ValueError):
    """There is no GPU, or no driver, to run a kernel on; the sentence says which."""


class WrongArchitecture(ValueError):
    """A kernel that this GPU does not run."""


class WrongArray(ValueError):
    """An array that a kernel does not take: its type, shape, strides, alignment or place."""


class OutOfDeviceMemory(ValueError):
    """The GPU has too little free memory."""


class LaunchRefused(ValueError):
    """A launch that cannot work on this GPU: too much shared memory, no room for a cluster, too large a grid."""


class CudaError(RuntimeError):
    """A call of the driver that failed.

    call  the function: "cuLaunchKernelEx"
    code  the driver's name of the error: "CUDA_ERROR_ILLEGAL_ADDRESS"
    """

    def __init__(self, call: str, code: str) -> None:
        self.call = call
        self.code = code
        meaning = f": {_MEANINGS[code]}" if code in _MEANINGS else ""
        super().__init__(f"{call} returned {code}{meaning}")

    @property
    def context_lost(self) -> bool:
        """Whether nothing more runs in this process."""
        return self.code in CONTEXT_LOST
