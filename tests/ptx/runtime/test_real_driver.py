"""The driver module that ships: every call that the runtime makes has arguments that it takes, up to the library."""

import sys
from typing import Any

import pytest
from fake_cuda import FakeCuda
from small_kernels import add_launch, add_ptx

from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.calls import Driver, gpu_driver, load_driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.driver import available
from tinygpu.ptx.runtime.errors import GpuUnavailable
from tinygpu.ptx.runtime.launch import Map
from tinygpu.ptx.runtime.loaded import load_kernel
from tinygpu.ptx.runtime.streams import Event, Stream
from tinygpu.ptx.runtime.tensor_maps import encode_map

real = pytest.importorskip("cuda.bindings.driver")
no_driver = pytest.mark.skipif(available().present, reason="this machine has a driver")


def calls_of_a_session() -> dict[str, list[tuple[Any, ...]]]:
    """The arguments of every function that the runtime calls, from a session on the fake driver."""
    fake = FakeCuda()
    context = open_context(Driver(fake))
    context.free_bytes()
    kernel = load_kernel(context, add_launch(smem_bytes=50 << 10, cluster=2), add_ptx().encode())
    memory, other = context.allocate(8192), context.allocate(8192)
    memory.fill(0)
    memory.copy_from(other)
    memory.write(memory.read())
    arguments = ArgumentBuffer(context.driver, kernel.launch, dict.fromkeys("xzy", memory.address))
    fake.emulating = False
    context.synchronize()
    stream, start, stop = Stream(context), Event(context), Event(context)
    start.record(stream)
    kernel.run(arguments, kernel.config(stream.handle))
    stop.record(stream)
    stream.synchronize()
    context.synchronize()
    stop.seconds_since(start)
    with stream.capture():
        start.record_in_graph(stream)
        stream.fill(memory.address, 0, 16)
    assert stream.graph is not None
    stream.graph.run(stream)
    encode_map(context.driver, Map("a", "bf16", (64, 64), (128,), (64, 8), 128), memory.address)
    attribute = context.driver.enum("CUpointer_attribute", "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL")
    context.driver.call("cuPointerGetAttribute", attribute, memory.address)
    stream.graph.close()
    for one in (start, stop, stream):
        one.close()
    kernel.unload()
    memory.free()
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name, given in fake.calls:
        found.setdefault(name, []).append(given)
    return found


# Handles of the fake driver are numbers or objects of its own; the real one has a type for each.
HANDLES = {
    "cuCtxSetCurrent": ("CUcontext",), "cuModuleGetFunction": ("CUmodule",), "cuModuleUnload": ("CUmodule",),
    "cuFuncGetAttribute": (None, "CUfunction"), "cuFuncSetAttribute": ("CUfunction",),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": ("CUfunction",), "cuOccupancyMaxActiveClusters": ("CUfunction",),
    "cuLaunchKernelEx": (None, "CUfunction"), "cuEventRecord": ("CUevent",), "cuEventDestroy": ("CUevent",),
    "cuEventRecordWithFlags": ("CUevent",), "cuEventElapsedTime": ("CUevent", "CUevent"),
    "cuGraphInstantiate": ("CUgraph",), "cuGraphDestroy": ("CUgraph",), "cuGraphLaunch": ("CUgraphExec",),
    "cuGraphExecDestroy": ("CUgraphExec",),
}  # fmt: skip


@no_driver
def test_every_call_reaches_the_library() -> None:
    """Without a library the bindings fail only once they have taken the arguments."""
    session = calls_of_a_session()
    assert len(session) > 30
    for name, given in session.items():
        for arguments in given:
            kinds = HANDLES.get(name, ())
            made = [
                getattr(real, kinds[i])(0) if i < len(kinds) and kinds[i] else a for i, a in enumerate(arguments)
            ]
            with pytest.raises(Exception) as error:
                getattr(real, name)(*made)
            assert type(error.value).__name__ == "DynamicLibNotFoundError", (name, made, error.value)


@no_driver
def test_no_driver_is_one_sentence() -> None:
    with pytest.raises(GpuUnavailable) as error:
        load_driver()
    assert str(error.value).startswith("there is no CUDA driver: ")
    assert "\n" not in str(error.value)
    with pytest.raises(GpuUnavailable) as error:
        gpu_driver()
    assert str(error.value) == f"no kernel can be run here: {available().reason}"


def test_no_bindings_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(GpuUnavailable) as error:
        load_driver()
    assert str(error.value) == (
        "running kernels needs the package cuda-bindings: import of cuda.bindings.driver halted; None in sys.modules"
    )


def test_a_driver_that_refuses_is_told_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "broken_cuda", FakeCuda(lost="CUDA_ERROR_NO_DEVICE"))  # type: ignore[arg-type]
    with pytest.raises(GpuUnavailable) as error:
        load_driver("broken_cuda")
    assert str(error.value) == (
        "the CUDA driver is installed but does not work: cuInit returned CUDA_ERROR_NO_DEVICE"
    )
