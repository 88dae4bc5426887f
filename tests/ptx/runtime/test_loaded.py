"""Loading and launching: what reaches the driver, what is refused before, and the sentences."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from small_kernels import add_launch, add_ptx

from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.errors import (
    CudaError,
    GpuUnavailable,
    LaunchRefused,
    OutOfDeviceMemory,
    WrongArchitecture,
)
from tinygpu.ptx.runtime.launch import Launch
from tinygpu.ptx.runtime.loaded import load_kernel
from tinygpu.ptx.runtime.streams import Event, Stream

PTX = add_ptx().encode()


def opened(**gpu: Any) -> tuple[FakeCuda, Context]:
    fake = FakeCuda(**gpu)
    return fake, open_context(Driver(fake))


def test_a_context_says_what_the_driver_says() -> None:
    _, context = opened(sms=132, l2_bytes=60 << 20)
    limits = context.limits
    assert (limits.name, limits.cc, limits.architecture, limits.sms) == ("NVIDIA H200", 90, "sm_90", 132)
    assert (limits.driver, limits.bus, limits.memory_bytes) == ("13.0", "0000:00:00.0", 1 << 28)


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(GpuUnavailable) as error:
        open_context(Driver(FakeCuda(gpus=1)), 3)
    assert str(error.value) == "there is no GPU number 3: the driver sees 1 GPU, numbered from 0"


def test_memory_keeps_what_is_written_and_is_freed() -> None:
    fake, context = opened()
    memory = context.allocate(100)
    memory.fill(7)
    memory.write(np.arange(5, dtype=np.int32), 8)
    assert memory.read(8, 20).view(np.int32).tolist() == [0, 1, 2, 3, 4]
    assert memory.read(28).tolist() == [7] * 72
    other = context.allocate(100)
    other.copy_from(memory)
    assert other.read().tolist() == memory.read().tolist()
    memory.free()
    memory.free()
    del other
    assert fake.allocations == {}


def test_too_little_memory_is_a_sentence() -> None:
    _, context = opened(memory_bytes=1 << 20)
    kept = context.allocate(1 << 19)
    with pytest.raises(OutOfDeviceMemory) as error:
        context.allocate(1 << 20, "an array of [512, 512] f32")
    assert str(error.value) == (
        "an array of [512, 512] f32 needs 1,048,576 B of GPU memory, and 524,288 B of 1,048,576 B are free; "
        "free arrays of other libraries, or use a smaller problem"
    )
    assert kept.size_bytes == 1 << 19


def test_bytes_outside_a_memory_are_refused() -> None:
    _, context = opened()
    memory = context.allocate(16)
    with pytest.raises(ValueError, match=r"^8 B from byte 12 on are not within memory of 16 B$"):
        memory.write(np.zeros(8, np.uint8), 12)
    with pytest.raises(ValueError, match=r"^memory of 16 B does not take the 32 B of another$"):
        memory.copy_from(context.allocate(32))


def test_a_launch_runs_with_its_arguments() -> None:
    fake, context = opened()
    launch = add_launch(1000)
    x, z, y = (context.allocate(4000) for _ in range(3))
    rng = np.random.default_rng(0)
    a, b = rng.random(1000, dtype=np.float32), rng.random(1000, dtype=np.float32)
    x.write(a)
    z.write(b)
    context.synchronize()
    kernel = load_kernel(context, launch, PTX)
    arguments = ArgumentBuffer(context.driver, launch, {"x": x.address, "z": z.address, "y": y.address})
    assert arguments.scalars == ("s",)
    arguments.set_scalar("s", 2.5)
    stream = Stream(context)
    kernel.run(arguments, kernel.config(stream.handle))
    stream.synchronize()
    np.testing.assert_array_equal(y.read().view(np.float32), a + b + np.float32(2.5))
    (seen,) = fake.launches
    assert (seen["grid"], seen["block"], seen["cluster"], seen["stream"]) == ((16, 1, 1), (64, 1, 1), 1, stream.number)
    assert seen["attributes"] == []


def test_shared_memory_beyond_the_default_is_opted_into_once_and_only_then() -> None:
    fake, context = opened()
    load_kernel(context, add_launch(smem_bytes=48 << 10), PTX)
    assert fake.count("cuFuncSetAttribute") == 0
    load_kernel(context, add_launch(smem_bytes=(48 << 10) + 16), PTX)
    (call,) = [a for name, a in fake.calls if name == "cuFuncSetAttribute"]
    assert call[1].name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert call[2] == (48 << 10) + 16


def test_clusters_cooperation_and_dependence_are_launch_attributes() -> None:
    waiting = add_ptx("griddepcontrol.wait").encode()
    fake, context = opened()
    launch = add_launch(ctas=16, cluster=4, cooperative=True, dependent=True)
    kernel = load_kernel(context, launch, waiting)
    config = kernel.config(0)
    names = sorted(a.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_") for a in config.attrs)
    assert names == ["CLUSTER_DIMENSION", "COOPERATIVE", "PROGRAMMATIC_STREAM_SERIALIZATION"]
    values = {a.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"): a.value for a in config.attrs}
    assert values["CLUSTER_DIMENSION"].clusterDim.x == 4
    assert values["COOPERATIVE"].cooperative == 1
    assert values["PROGRAMMATIC_STREAM_SERIALIZATION"].programmaticStreamSerializationAllowed == 1
    assert config.gridDimX == 16
    assert fake.count("cuFuncSetAttribute") == 0


def test_clusters_of_more_than_eight_are_asked_for() -> None:
    fake, context = opened()
    load_kernel(context, add_launch(ctas=32, cluster=16), PTX)
    (call,) = [a for name, a in fake.calls if name == "cuFuncSetAttribute"]
    assert call[1].name == "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"


@pytest.mark.parametrize(("cluster", "ctas", "expected"), [(1, 1000, 128), (1, 100, 100), (4, 1000, 128), (4, 40, 40)])
def test_a_persistent_grid_is_what_is_resident_and_no_more_than_has_tiles(
    cluster: int, ctas: int, expected: int
) -> None:
    _, context = opened(sms=4)  # 32 CTAs of 64 threads each
    kernel = load_kernel(context, add_launch(ctas=ctas, cluster=cluster, persistent=True), PTX)
    assert kernel.resident_ctas == 128
    assert kernel.grid == expected
    other = kernel.for_launch(add_launch(ctas=8, cluster=cluster, persistent=True))
    assert other.grid == 8


LOST = ("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_UNKNOWN")
# What drivers call machine code of another architecture, of a later toolkit, or cut short.
NOT_TAKEN = (
    "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_INVALID_SOURCE",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
)  # fmt: skip


def test_a_cubin_is_preferred() -> None:
    fake, context = opened()
    cubin = b"\x7fELF machine code"
    fake.cubins[cubin] = PTX
    budgets = PTX + b"\n// setmaxnreg.inc.sync.aligned.u32 232;\n"
    for ptx in (PTX, budgets):
        assert load_kernel(context, add_launch(), ptx, cubin).refused_cubin == ""
    assert fake.count("cuModuleLoadData") == 2


@pytest.mark.parametrize("code", NOT_TAKEN)
def test_ptx_is_taken_where_the_cubin_is_refused_and_the_reason_is_kept(code: str) -> None:
    fake, context = opened(refusal=code)
    kernel = load_kernel(context, add_launch(), PTX, b"\x7fELF of another toolkit")
    assert fake.count("cuModuleLoadData") == 2
    assert kernel.refused_cubin == code
    assert kernel.for_launch(add_launch(5)).refused_cubin == code


@pytest.mark.parametrize("code", LOST)
def test_a_lost_context_is_no_refusal_of_an_image(code: str) -> None:
    fake, context = opened(lost="")
    fake.lost = code
    for cubin in (None, b"\x7fELF"):
        with pytest.raises(CudaError) as error:
            load_kernel(context, add_launch(), PTX, cubin)
        assert (error.value.code, error.value.context_lost) == (code, True)
    assert fake.count("cuModuleLoadData") == 2


def test_memory_that_is_used_up_is_no_refusal_of_an_image() -> None:
    fake, context = opened(refusal="CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(OutOfDeviceMemory) as error:
        load_kernel(context, add_launch(), PTX, b"\x7fELF")
    assert str(error.value) == (
        "the code of add needs 4 B of GPU memory, and 268,435,456 B of 268,435,456 B are free; "
        "free arrays of other libraries, or use a smaller problem"
    )
    assert fake.count("cuModuleLoadData") == 1


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"target": "sm_100a"},
        WrongArchitecture,
        "this kernel runs on sm_100a alone, and GPU 0, NVIDIA H200, is sm_90; compile for this GPU",
    ),
    (
        {"target": "sm_120"},
        WrongArchitecture,
        "this kernel runs on sm_120 and later, and GPU 0, NVIDIA H200, is sm_90; compile for this GPU",
    ),
    (
        {"target": "sm_100f"},
        WrongArchitecture,
        "this kernel runs on sm_100f and later of its family, and GPU 0, NVIDIA H200, is sm_90; compile for this GPU",
    ),
    (
        {"target": "gfx90a"},
        WrongArchitecture,
        "a kernel states an architecture like sm_80 or sm_90a, not 'gfx90a'",
    ),
    (
        {"threads": 2048},
        LaunchRefused,
        "add has 2048 threads per CTA, and NVIDIA H200 takes 1024 at most",
    ),
    (
        {"smem_bytes": 300_000},
        LaunchRefused,
        "add needs 300,000 B of dynamic shared memory per CTA, and NVIDIA H200 has 232,448; compile for this GPU",
    ),
    (
        {"smem_bytes": 200_000, "cluster": 8, "ctas": 8},
        LaunchRefused,
        "a cluster of 8 CTAs of add does not fit on NVIDIA H200: 64 threads and 200,000 B of shared memory per CTA",
    ),
    (
        {"cooperative": True, "ctas": 129},
        LaunchRefused,
        "add needs its 129 CTAs resident at a time, and NVIDIA H200 holds 128",
    ),
    (
        {"dependent": True},
        LaunchRefused,
        "add cannot begin before the kernel in front of it has ended: "
        "it has no griddepcontrol.wait, and would read what is not yet written",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_run_is_refused_with_a_sentence(number: int) -> None:
    changed, kind, sentence = REFUSED[number]
    fake, context = opened()
    with pytest.raises(kind) as error:
        load_kernel(context, add_launch(**changed), PTX)
    assert str(error.value) == sentence
    loaded = fake.count("cuModuleLoadData")
    assert fake.count("cuModuleUnload") == loaded
    assert fake.launches == []


@pytest.mark.parametrize(
    ("target", "cc", "runs"),
    [("sm_80", 90, True), ("sm_90a", 90, True), ("sm_90a", 100, False), ("sm_100f", 103, True), ("sm_90", 80, False)],
)
def test_targets_run_where_the_manual_says(target: str, cc: int, runs: bool) -> None:
    _, context = opened(cc=divmod(cc, 10))
    if runs:
        load_kernel(context, add_launch(target=target), PTX)
    else:
        with pytest.raises(WrongArchitecture):
            load_kernel(context, add_launch(target=target), PTX)


def test_shared_memory_that_the_kernel_declares_itself_counts_too() -> None:
    """How much is left beside it, the driver knows."""
    fake, context = opened()
    fake.static_smem_bytes = 1024
    load_kernel(context, add_launch(smem_bytes=232_448 - 1024), PTX)
    with pytest.raises(LaunchRefused) as error:
        load_kernel(context, add_launch(smem_bytes=232_448), PTX)
    assert str(error.value) == (
        "add needs 232,448 B of dynamic shared memory per CTA beside 1,024 B that it declares, and NVIDIA H200 has "
        "232,448; compile for this GPU"
    )


def test_ptx_that_the_driver_refuses_is_named() -> None:
    _, context = opened()
    with pytest.raises(LaunchRefused) as error:
        load_kernel(context, add_launch(), b"not PTX")
    assert str(error.value) == (
        "add cannot be loaded on NVIDIA H200 with driver 13.0: cuModuleLoadData returned CUDA_ERROR_INVALID_PTX: "
        "the driver does not take this PTX"
    )


def test_a_fault_of_a_kernel_comes_out_of_the_next_wait_and_is_known_to_lose_the_context() -> None:
    _, context = opened()
    launch = add_launch(1000)
    kernel = load_kernel(context, launch, add_ptx(offset=1 << 20).encode())
    memory = context.allocate(4000)
    arguments = ArgumentBuffer(context.driver, launch, dict.fromkeys("xzy", memory.address))
    arguments.set_scalar("s", 0)
    config = kernel.config(0)
    with pytest.raises(CudaError) as error:
        kernel.run(arguments, config)
    assert error.value.context_lost
    assert str(error.value).endswith(
        " returned CUDA_ERROR_ILLEGAL_ADDRESS: a kernel touched memory that is not its own"
    )


def test_a_graph_runs_what_was_captured_and_its_events_time_it() -> None:
    fake, context = opened(noise=0.0)
    launch = add_launch()
    kernel = load_kernel(context, launch, add_ptx("fake: us=50").encode())
    memory = context.allocate(4000)
    arguments = ArgumentBuffer(context.driver, launch, dict.fromkeys("xzy", memory.address))
    stream, start, stop = Stream(context), Event(context), Event(context)
    with stream.capture():
        start.record_in_graph(stream)
        for _ in range(4):
            kernel.run(arguments, kernel.config(stream.handle))
        stop.record_in_graph(stream)
    assert fake.now == 0
    assert stream.graph is not None
    stream.graph.run(stream)
    assert stop.seconds_since(start) == pytest.approx(200e-6)
    stream.graph.close()


def test_a_capture_that_fails_leaves_the_stream_usable() -> None:
    fake, context = opened()
    stream = Stream(context)
    with pytest.raises(RuntimeError, match=r"^mine$"), stream.capture():
        raise RuntimeError("mine")
    assert fake.capturing == {}
    with stream.capture():
        pass
    assert stream.graph is not None


def test_a_launch_survives_json() -> None:
    import json

    launch = replace(add_launch(), cluster=2, persistent=True)
    assert Launch.from_json(json.loads(json.dumps(launch.to_json()))) == launch
