"""How long a call of a compiled kernel takes on the host, with arrays that were seen before.

Over the real bindings; where there is no driver, over a library in its place that does nothing but return, so that what
is timed is Python and the bindings alone. Run: python tests/benchmarks/launch_overhead.py
"""

import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

CALLS = globals().get("CALLS", 20_000)
FAKE = Path(globals().get("__file__", "tests/benchmarks/x")).resolve().parents[1] / "ptx" / "fake"
if str(FAKE) not in sys.path:
    sys.path.append(str(FAKE))


class Tensor:
    """What a call asks a PyTorch tensor for."""

    __module__ = "torch"

    def __init__(self, of):
        self.of, self.shape, self.dtype, self.is_cuda = of, of.shape, "torch.float32", True
        self.device = SimpleNamespace(index=0)

    def data_ptr(self):
        return self.of.address

    def stride(self):
        return self.of.strides


def measure():
    import numpy as np
    from small_kernels import add_launch, add_ptx

    from tinygpu.ptx.runtime.arrays import DeviceArray
    from tinygpu.ptx.runtime.callable import CallableKernel, Signature
    from tinygpu.ptx.runtime.calls import gpu_driver
    from tinygpu.ptx.runtime.context import open_context

    context = open_context(gpu_driver())
    arrays = [DeviceArray(context, (64,), "f32") for _ in range(3)]
    for array in arrays:
        array.memory.write(np.zeros(64, np.float32))
    signature = Signature("Add", ("x", "z"), ("y",), ("s",))
    kernel = CallableKernel(signature, lambda views: add_launch(64), lambda: context, add_ptx().encode())
    kinds = {"arrays of our own": arrays}
    if "torch" not in sys.modules:  # no PyTorch here: its stream comes from a stand-in
        sys.modules["torch"] = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 0))
        kinds["tensors as PyTorch's"] = [Tensor(a) for a in arrays]
    for name, (x, z, y) in kinds.items():
        took = []
        for _ in range(5):
            begun = time.perf_counter()
            for _ in range(CALLS):
                kernel(x, z, out=y, s=1.0)
            took.append((time.perf_counter() - begun) / CALLS)
        print(f"{name}: {statistics.median(took) * 1e6:.2f} us per call (three arrays, one number)")


def main():
    from tinygpu.ptx.runtime.driver import available

    if available().present:
        measure()
        return
    import tempfile

    import stub_cuda

    with tempfile.TemporaryDirectory() as folder:
        library = stub_cuda.build(Path(folder))
        print("no driver here: over a library that does nothing")
        print(stub_cuda.run(Path(__file__).read_text().replace("__file__", repr(__file__)), library), end="")


main()
