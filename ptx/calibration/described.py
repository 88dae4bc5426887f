"""The launch of a microbenchmark as the runtime takes it: for a GPU, and for the emulator by the same data."""

from __future__ import annotations

from tinygpu.ptx.calibration.benchmark import CLOCKS, SINK, TRIPS, Launch, Map, Number
from tinygpu.ptx.runtime import launch as runtime

# What cuMemAlloc gives is aligned to at least this (CUDA programming guide, device memory accesses).
_ALIGN_BYTES = 256


def described_launch(launch: Launch, entry: str = "", target: str = "") -> runtime.Launch:
    """The launch of a microbenchmark in the runtime's words.

    entry, target  of its kernel, where it is to be loaded
    """
    tensors = tuple(
        runtime.Tensor(b.name, "u8", (b.size_bytes,), (1,), _ALIGN_BYTES, "inout") for b in launch.all_buffers()
    )
    made = [a for a in launch.arguments if isinstance(a, Map)]
    maps = tuple(runtime.Map(m.buffer, "f16", m.dims, (2 * m.dims[0],), m.box, 0) for m in made)
    arguments = [
        runtime.Argument("address", CLOCKS), runtime.Argument("address", SINK),
        runtime.Argument("scalar", TRIPS, "u32"),
    ]  # fmt: skip
    for argument in launch.arguments:
        if isinstance(argument, Map):
            arguments.append(runtime.Argument("map", argument.name, map=made.index(argument)))
        elif isinstance(argument, Number):
            arguments.append(runtime.Argument("number", argument.name, "u32", argument.value))
        else:
            arguments.append(runtime.Argument("address", argument.name))
    return runtime.Launch(
        entry, target, launch.grid, launch.block, launch.cluster, 0, tuple(arguments), tensors, maps
    )
