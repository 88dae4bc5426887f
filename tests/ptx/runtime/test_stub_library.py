"""The real bindings over a library in the driver's place: what the runtime hands over arrives, byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest
import stub_cuda

from tinygpu.ptx.runtime.driver import available

pytestmark = [
    pytest.mark.skipif(stub_cuda.COMPILER is None, reason="there is no C compiler"),
    pytest.mark.skipif(available().present, reason="this machine has a driver of its own"),
]

SESSION = """
import ctypes, json, sys
import numpy as np
from small_kernels import add_launch, add_ptx
from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.arrays import DeviceArray
from tinygpu.ptx.runtime.callable import CallableKernel, Signature
from tinygpu.ptx.runtime.calls import gpu_driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.launch import Map
from tinygpu.ptx.runtime.loaded import load_kernel
from tinygpu.ptx.runtime.streams import Event, Stream
from tinygpu.ptx.runtime.tensor_maps import encode_map

stub = ctypes.CDLL("libcuda.so.1")
def last():
    seen = (ctypes.c_uint * 16)()
    stub.stub_last(seen)
    return list(seen)

context = open_context(gpu_driver())
out = {"limits": [context.limits.name, context.limits.cc, context.limits.sms, context.limits.smem_bytes]}
signature = Signature("Add", ("x", "z"), ("y",), ("s",))
kernel = CallableKernel(signature, lambda views: add_launch(100), lambda: context, add_ptx().encode())
x, z = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
out["host"] = kernel(x, z, s=0.5)[:3].tolist()
device = []
for data in (x, z, z):
    array = DeviceArray(context, (100,), "f32")
    array.memory.write(data)
    device.append(array)
out["device"] = kernel(*device[:2], out=device[2], s=2).numpy()[:3].tolist()
out["plain"] = last()[:4]
waiting = add_ptx("griddepcontrol.wait").encode()
launch = add_launch(100, ctas=16, cluster=4, smem_bytes=100_000, cooperative=True, dependent=True)
loaded = load_kernel(context, launch, waiting)
out["resident"] = loaded.resident_ctas
stream = Stream(context)
arguments = ArgumentBuffer(context.driver, launch, {n: a.address for n, a in zip("xzy", device)})
arguments.set_scalar("s", 1.0)
loaded.run(arguments, loaded.config(stream.handle))
out["attributes"] = last()[:11]
start, stop = Event(context), Event(context)
before = stub.stub_launches()
with stream.capture():
    start.record_in_graph(stream)
    for _ in range(3):
        loaded.run(arguments, loaded.config(stream.handle))
    stop.record_in_graph(stream)
stream.graph.run(stream)
out["captured"] = [stub.stub_captured(), stop.seconds_since(start)]
asked = context.driver, Map("a", "bf16", (640, 64), (1280,), (32, 8), 64), 4096
out["map"] = np.frombuffer(encode_map(*asked), dtype=np.uint64)[:13].tolist()
stub.stub_align_maps(1)
out["aligned map"] = [encode_map(*asked) == encode_map(*asked), stub.stub_refused_maps()]
out["same map"] = np.frombuffer(encode_map(*asked), dtype=np.uint64)[:13].tolist()
memory = context.allocate(100)
memory.fill(7)
out["memory"] = [int(memory.read().sum()), context.free_bytes()]
print(json.dumps(out))
"""



@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_cuda.build(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="module")
def seen(library: Path) -> Any:
    return json.loads(stub_cuda.run(SESSION, library))


@pytest.mark.end_to_end
def test_limits_are_asked_for_by_the_right_numbers(seen: Any) -> None:
    assert seen["limits"] == ["NVIDIA H200", 90, 132, 232448]


def test_calls_compute_on_host_and_device_arrays(seen: Any) -> None:
    assert seen["host"] == [1.5, 2.5, 3.5]
    assert seen["device"] == [3, 4, 5]


def test_a_plain_launch_has_its_grid_and_no_attributes(seen: Any) -> None:
    assert seen["plain"] == [2, 64, 0, 0]


def test_attributes_arrive_with_their_values(seen: Any) -> None:
    # cuda.h, CUlaunchAttributeID: 4 is the cluster's dimension, 2 cooperation, 6 programmatic stream serialization
    grid, block, smem, count, stream, *attributes = seen["attributes"]
    assert (grid, block, smem, count, stream) == (16, 64, 100_000, 3, 0x40)
    assert attributes == [4, 4, 2, 1, 6, 1]
    assert seen["resident"] == 264


def test_graphs_hold_what_was_captured(seen: Any) -> None:
    assert seen["captured"] == [3, pytest.approx(0.002)]


def test_tensor_maps_are_asked_for_as_the_map_says(seen: Any) -> None:
    # type 9 is bf16, rank, address, dims, stride, box, element stride, no interleave, swizzle 2 is 64 bytes, L2 128 B
    assert seen["map"] == [9, 2, 4096, 640, 64, 1280, 32, 8, 1, 0, 2, 2, 0]


def test_a_driver_that_writes_to_aligned_memory_alone_makes_the_same_map(seen: Any) -> None:
    equal, refused = seen["aligned map"]
    assert (equal, seen["same map"]) == (True, seen["map"])
    # the bindings' own memory is aligned by chance alone, so that this is tried where it is not
    assert refused >= 1


def test_memory_is_filled_and_read(seen: Any) -> None:
    assert seen["memory"] == [700, 1 << 29]


def test_the_launch_of_a_call_with_known_arrays_is_short(library: Path) -> None:
    """Not how long it takes (tests/benchmarks/launch_overhead.py measures that), but that the program runs."""
    benchmark = Path(__file__).parents[2] / "benchmarks" / "launch_overhead.py"
    printed = stub_cuda.run(f"CALLS = 50\n{benchmark.read_text()}", library)
    assert "arrays of our own" in printed
