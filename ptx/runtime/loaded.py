"""A kernel on a GPU: loaded from a cubin or from PTX, its limits raised, and launched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.calls import out_of_memory
from tinygpu.ptx.runtime.context import Context
from tinygpu.ptx.runtime.errors import CudaError, LaunchRefused, WrongArchitecture
from tinygpu.ptx.runtime.launch import Bank, Launch, Workspace

# CUDA C++ programming guide, thread block clusters: every GPU with clusters takes 8 CTAs; more are asked for.
PORTABLE_CLUSTER = 8
# griddepcontrol.wait is what makes a kernel that begins early wait for the one before it (PTX ISA, griddepcontrol).
_WAITS = re.compile(rb"griddepcontrol\.wait")


@dataclass(frozen=True, slots=True, eq=False)
class LoadedKernel:
    """A kernel that the driver has loaded.

    module         the driver's module; unloaded by `unload`
    function       the driver's function
    registers      per thread
    local_bytes    local memory per thread, spills included
    ctas_per_sm    CTAs that one SM holds at a time
    resident_ctas  CTAs that the GPU holds at a time
    banks          bank -> where it lies on the GPU
    refused_cubin  why the driver compiled the PTX though there was machine code; "" where it did not
    """

    context: Context
    launch: Launch
    module: Any
    function: Any
    registers: int
    local_bytes: int
    ctas_per_sm: int
    resident_ctas: int
    banks: Mapping[str, int]
    refused_cubin: str = ""

    @property
    def grid(self) -> int:
        """CTAs that are launched."""
        return self.launch.grid(self.resident_ctas)

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        """What a launch needs beside its tensors, with what that is for its CTAs."""
        return tuple(
            replace(w, bytes=w.bytes + w.cta_bytes * self.grid, cta_bytes=0) for w in self.launch.workspaces
        )

    def for_launch(self, launch: Launch) -> LoadedKernel:
        """The same kernel for another problem; raises LaunchRefused where the grid is too large."""
        _check_resident(self.context, launch, self.resident_ctas)
        return replace(self, launch=launch)

    def config(self, stream: Any) -> Any:
        """The driver's launch configuration, for a stream (a handle, or its number)."""
        return _config(self.context, self.launch, self.grid, stream)

    def arguments(self, addresses: Mapping[str, int]) -> ArgumentBuffer:
        """The launch's arguments, with addresses of its tensors and workspaces."""
        return ArgumentBuffer(self.context.driver, self.launch, addresses)

    def calls(self, arguments: ArgumentBuffer, config: Any) -> tuple[tuple[Any, Any, int], ...]:
        """(configuration, function, address of the arguments) of the launch."""
        return ((config, self.function, arguments.address),)

    def run(self, arguments: ArgumentBuffer, config: Any) -> None:
        """Fills the kernel's banks, and launches once; returns at once.

        Launches of one module that run at a time have one content of its banks: those on other streams have modules of
        their own.
        """
        for bank, at, source, size in arguments.fills:
            self.context.driver.call("cuMemcpyDtoDAsync", self.banks[bank] + at, source, size, config.hStream)
        status = self.context.driver.module.cuLaunchKernelEx(config, self.function, arguments.address, 0)[0]
        if status:
            raise CudaError("cuLaunchKernelEx", self.context.driver.code(status))

    def unload(self) -> None:
        self.context.driver.release("cuModuleUnload", self.module)


def load_kernel(context: Context, launch: Launch, ptx: bytes, cubin: bytes | None = None) -> LoadedKernel:
    """Loads a kernel, from its cubin where there is one, and raises what limits it needs raised.

    cubin  machine code that does what the PTX says; that of nvJitLink has no register budgets
           (`Assembly.heeds_budgets`)

    Raises WrongArchitecture, LaunchRefused, OutOfDeviceMemory, and CudaError where the context is lost.
    """
    check_target(launch.target, context)
    _check_fits(context, launch)
    if launch.dependent and not _WAITS.search(ptx):
        raise LaunchRefused(
            f"{launch.kernel} cannot begin before the kernel in front of it has ended: "
            "it has no griddepcontrol.wait, and would read what is not yet written"
        )
    driver = context.driver
    module, refused_cubin = _load(context, launch, ptx, cubin)
    try:
        function = driver.call("cuModuleGetFunction", module, launch.kernel.encode())
        attribute = {n: _attribute(context, function, n) for n in ("NUM_REGS", "LOCAL_SIZE_BYTES", "SHARED_SIZE_BYTES")}
        _open_smem(context, launch, function, attribute["SHARED_SIZE_BYTES"])
        if launch.cluster > PORTABLE_CLUSTER:
            allowed = "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"
            driver.call("cuFuncSetAttribute", function, driver.enum("CUfunction_attribute", allowed), 1)
        per_sm, resident = _residents(context, launch, function)
        banks = {b.name: _bank(context, launch, module, b) for b in launch.banks}
    except BaseException:
        driver.release("cuModuleUnload", module)
        raise
    registers, local = attribute["NUM_REGS"], attribute["LOCAL_SIZE_BYTES"]
    return LoadedKernel(context, launch, module, function, registers, local, per_sm, resident, banks, refused_cubin)


def _bank(context: Context, launch: Launch, module: Any, bank: Bank) -> int:
    """Where a bank of a module lies; raises LaunchRefused where the module has none of that size."""
    try:
        address, size = context.driver.call("cuModuleGetGlobal", module, bank.name.encode())
    except CudaError as refused:
        if refused.context_lost:
            raise
        raise LaunchRefused(f"{launch.kernel} has no variable {bank.name}, which its launch fills") from None
    if size != bank.bytes:
        raise LaunchRefused(f"{launch.kernel} has {size:,} bytes in {bank.name}, and its launch fills {bank.bytes:,}")
    return int(address)


def check_target(target: str, context: Context) -> None:
    """Refuses a kernel of an architecture that the GPU does not run. Raises WrongArchitecture."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        raise WrongArchitecture(f"a kernel states an architecture like sm_80 or sm_90a, not {target!r}")
    number, suffix = int(match[1]), match[2]
    limits = context.limits
    # PTX ISA, .target: "a" runs on that architecture alone, "f" on later ones of its major number, else on all later.
    runs = {
        "a": limits.cc == number,
        "f": limits.cc // 10 == number // 10 and limits.cc >= number,
        "": limits.cc >= number,
    }[suffix]
    if not runs:
        where = {"a": f"{target} alone", "f": f"{target} and later of its family", "": f"{target} and later"}[suffix]
        raise WrongArchitecture(
            f"this kernel runs on {where}, and GPU {limits.ordinal}, {limits.name}, is {limits.architecture}; "
            "compile for this GPU"
        )


def _check_fits(context: Context, launch: Launch) -> None:
    limits = context.limits
    if launch.threads > limits.threads:
        raise LaunchRefused(
            f"{launch.kernel} has {launch.threads} threads per CTA, and {limits.name} takes {limits.threads} at most"
        )
    if launch.cooperative and not limits.cooperative:
        raise LaunchRefused(f"{limits.name} has no cooperative launches, and {launch.kernel} needs one")


def _load(context: Context, launch: Launch, ptx: bytes, cubin: bytes | None) -> tuple[Any, str]:
    """(the module, why it is not from the cubin).

    Machine code may be of another architecture, of a later toolkit than the driver, or damaged, and drivers have
    several names for each; all of them take PTX.
    """
    refusal = ""
    if cubin is not None:
        try:
            return _module(context, launch, cubin), ""
        except CudaError as refused:
            if refused.context_lost:
                raise
            refusal = refused.code
    try:
        return _module(context, launch, ptx + b"\0"), refusal
    except CudaError as refused:
        if refused.context_lost:
            raise
        raise LaunchRefused(
            f"{launch.kernel} cannot be loaded on {context.limits.name} with driver {context.limits.driver}: {refused}"
        ) from None


def _module(context: Context, launch: Launch, image: bytes) -> Any:
    """Raises CudaError where the image is refused or nothing runs any more, OutOfDeviceMemory where it has no room."""
    try:
        return context.driver.call("cuModuleLoadData", image)
    except CudaError as refused:
        if refused.code == "CUDA_ERROR_OUT_OF_MEMORY":
            raise out_of_memory(context.driver, len(image), f"the code of {launch.kernel}") from None
        raise


def _attribute(context: Context, function: Any, name: str) -> int:
    attribute = context.driver.enum("CUfunction_attribute", f"CU_FUNC_ATTRIBUTE_{name}")
    return int(context.driver.call("cuFuncGetAttribute", attribute, function))


def _open_smem(context: Context, launch: Launch, function: Any, static_bytes: int) -> None:
    """Lets the kernel have its dynamic shared memory: a fresh function is limited to what every GPU has."""
    limits = context.limits
    beside = f" beside {static_bytes:,} B that it declares" if static_bytes else ""
    refused = LaunchRefused(
        f"{launch.kernel} needs {launch.smem_bytes:,} B of dynamic shared memory per CTA{beside}, and {limits.name} "
        f"has {limits.smem_bytes:,}; compile for this GPU"
    )
    if launch.smem_bytes > limits.smem_bytes:
        raise refused
    if launch.smem_bytes > _attribute(context, function, "MAX_DYNAMIC_SHARED_SIZE_BYTES"):
        attribute = context.driver.enum("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")
        try:
            context.driver.call("cuFuncSetAttribute", function, attribute, launch.smem_bytes)
        except CudaError as error:
            if error.code == "CUDA_ERROR_INVALID_VALUE":  # what is reserved and declared leaves too little
                raise refused from None
            raise


def _residents(context: Context, launch: Launch, function: Any) -> tuple[int, int]:
    """(CTAs per SM, CTAs on the GPU) at a time; refuses a kernel of which not one fits."""
    driver, limits = context.driver, context.limits
    ask = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    per_sm = int(driver.call(ask, function, launch.threads, launch.smem_bytes))
    resident = per_sm * limits.sms
    if launch.cluster > 1 and per_sm:
        config = _config(context, launch, launch.ctas, 0)
        resident = int(driver.call("cuOccupancyMaxActiveClusters", function, config)) * launch.cluster
    if not resident:
        what = f"a cluster of {launch.cluster} CTAs" if launch.cluster > 1 else "a CTA"
        raise LaunchRefused(
            f"{what} of {launch.kernel} does not fit on {limits.name}: {launch.threads} threads and "
            f"{launch.smem_bytes:,} B of shared memory per CTA"
        )
    _check_resident(context, launch, resident)
    return per_sm, resident


def _check_resident(context: Context, launch: Launch, resident: int) -> None:
    if launch.cooperative and launch.grid(resident) > resident:
        raise LaunchRefused(
            f"{launch.kernel} needs its {launch.ctas:,} CTAs resident at a time, and {context.limits.name} holds "
            f"{resident:,}"
        )


def _config(context: Context, launch: Launch, grid: int, stream: Any) -> Any:
    driver = context.driver
    module = driver.module
    config = module.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
    config.sharedMemBytes = launch.smem_bytes
    config.hStream = module.CUstream(stream) if isinstance(stream, int) else stream
    attributes = []
    if launch.cluster > 1:
        value = module.CUlaunchAttributeValue()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = launch.cluster, 1, 1
        attributes.append(("CLUSTER_DIMENSION", value))
    if launch.cooperative:
        value = module.CUlaunchAttributeValue()
        value.cooperative = 1
        attributes.append(("COOPERATIVE", value))
    if launch.dependent:
        value = module.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attributes.append(("PROGRAMMATIC_STREAM_SERIALIZATION", value))
    made = []
    for name, value in attributes:
        attribute = module.CUlaunchAttribute()
        attribute.id = driver.enum("CUlaunchAttributeID", f"CU_LAUNCH_ATTRIBUTE_{name}")
        attribute.value = value
        made.append(attribute)
    config.attrs = made
    config.numAttrs = len(made)
    return config
