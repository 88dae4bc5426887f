"""The runtime and the worker on a real GPU. Needs NumPy, cuda-bindings and pytest; what needs more says so."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_kernels import add_bundle, add_launch, add_ptx, add_question

from tinygpu.ptx.measuring.statistics import ratio
from tinygpu.ptx.measuring.subject import Subject
from tinygpu.ptx.measuring.timing import Protocol, Stopwatch, take_turns
from tinygpu.ptx.runtime.arrays import DeviceArray
from tinygpu.ptx.runtime.callable import CallableKernel, Signature
from tinygpu.ptx.runtime.calls import gpu_driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.loaded import load_kernel

pytestmark = pytest.mark.gpu

# writes to an address that no allocation has; loops for ever
OUTSIDE = add_ptx(last="mov.u64 %d6, 4096;\n  st.global.f32 [%d6], %f0;")
ENDLESS = add_ptx(last="AGAIN:\n  add.f32 %f0, %f0, %f2;\n  bra AGAIN;")


@pytest.fixture(scope="module")
def context() -> Context:
    return open_context(gpu_driver())


def add(context: Context) -> CallableKernel:
    signature = Signature("Add", ("x", "z"), ("y",), ("s",))
    return CallableKernel(
        signature, lambda views: add_launch(views["x"].shape[0]), lambda: context, add_ptx().encode()
    )


def test_a_call_computes_on_numpy_and_our_own_arrays(context: Context) -> None:
    x, z = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    kernel = add(context)
    np.testing.assert_array_equal(kernel(x, z, s=0.5), x + 1.5)
    arrays = []
    for data in (x, z):
        arrays.append(DeviceArray(context, (1000,), "f32"))
        arrays[-1].memory.write(data)
    np.testing.assert_array_equal(kernel(*arrays, s=0.5).numpy(), x + 1.5)


def test_a_call_takes_pytorch_tensors_on_their_stream(context: Context) -> None:
    torch = pytest.importorskip("torch")
    kernel = add(context)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.arange(1000, device="cuda", dtype=torch.float32)
        z = torch.ones(1000, device="cuda")
        y = kernel(x, z, s=2)
        doubled = y * 2
    stream.synchronize()
    assert isinstance(y, torch.Tensor)
    assert torch.equal(doubled, (x + 3) * 2)
    ours = DeviceArray(context, (1000,), "f32")
    kernel(x, z, out=ours, s=2)
    context.synchronize()
    assert torch.equal(torch.from_dlpack(ours), x + 3)


def test_a_call_takes_cupy_and_jax_arrays(context: Context) -> None:
    kernel = add(context)
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(1000, dtype=cupy.float32)
    assert cupy.array_equal(kernel(x, x, s=1), 2 * x + 1)
    jax = pytest.importorskip("jax")
    a = jax.numpy.arange(1000, dtype=jax.numpy.float32)
    y = kernel(a, a, s=1)
    context.synchronize()
    assert bool((jax.dlpack.from_dlpack(y) == 2 * a + 1).all())


def test_the_machines_compute_what_their_references_say(context: Context) -> None:
    pytest.importorskip("z3")
    import tinygpu

    rng = np.random.default_rng(0)
    x, z = rng.random(100_003, dtype=np.float32), rng.random(100_003, dtype=np.float32)
    kernel = tinygpu.compile("axpby", x, z)
    np.testing.assert_allclose(kernel(x, z, a=2, b=3), 2 * x + 3 * z, rtol=1e-6)
    a = rng.integers(-3, 4, (1000, 520)).astype(np.float16)
    b = rng.integers(-3, 4, (520, 776)).astype(np.float16)
    matmul = tinygpu.compile("matmul", a, b)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(matmul(a, b), expected)


def test_one_kernel_under_two_names_is_a_tie(context: Context, tmp_path: Path) -> None:
    import time

    n = 1 << 22
    subject = Subject(context, add_question(n), 0, tmp_path)
    protocol = Protocol()
    clock = Stopwatch(subject, protocol)
    kernels = [load_kernel(context, add_launch(n), add_ptx().encode()) for _ in range(2)]
    assert subject.verify(kernels[0]) == ""
    verdicts = []
    for seed in range(10):
        samples = take_turns((clock, kernels[0]), (clock, kernels[1]), protocol, seed, time.monotonic)
        verdicts.append(ratio(*samples.cold).verdict(0.002))
    assert verdicts.count("tie") >= 9


def test_kernels_that_fault_or_hang_cost_themselves(tmp_path: Path) -> None:
    kernels = {"k0": add_ptx(), "k1": OUTSIDE, "k2": ENDLESS, "k3": add_ptx(last="sub.f32 %f0, %f0, %f2;")}
    bundle = tmp_path / "a.bundle"
    add_bundle(bundle, {**kernels, "k4": add_ptx("the same again")}, n=1 << 20)
    command = [sys.executable, "-m", "tinygpu.ptx.measuring", str(bundle), "--limit", "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in (tmp_path / "a.bundle.results.jsonl").read_text().splitlines()]
    found: dict[str, Any] = {line["kernel"]: line for line in lines if "status" in line}
    assert {k: f.get("failure", {}).get("kind") for k, f in found.items()} == {
        "k0": None, "k1": "fault", "k2": "hang", "k3": "wrong", "k4": None,
    }  # fmt: skip
    assert found["k4"]["verdict"] == "tie"
