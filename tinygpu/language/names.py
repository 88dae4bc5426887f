"""Names that a machine may give: what expressions, listings and kernels need to tell things apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tinygpu.language.declared import Declared
from tinygpu.language.memories import CONST_BYTES
from tinygpu.language.strides import MOST_AXES

# Symbols of expressions that tracing makes: tiles of the grid, rounds of loops, facts of the device.
TRACED = re.compile(r"(tile|part|i|u)\d+|device")
# Identifiers of a kernel that are not the machine's: its shared memory and workspaces, and a constant of PTX.
KERNEL = frozenset({"smem", "partials", "counters", "WARP_SZ"})


def mistake_in_names(machine: type[Declared]) -> str:
    """The first name that cannot stand, as "ATTRIBUTE: sentence"; "" where all can."""
    return next(_mistakes(machine), "")


def _mistakes(machine: type[Declared]) -> Iterator[str]:
    tensors = [t.name for t in machine.tensor_declarations()]
    arguments = [*tensors, *machine.dim_names(), *(s.name for s in machine.scalar_declarations())]
    for name in (*(p.name for p in machine.params()), *arguments):
        if TRACED.fullmatch(name):
            yield f"{name}: this name is used for tiles, loops and devices in expressions; choose another one"
    for name in arguments:
        if not name.isascii() or name.startswith("_"):
            yield f"{name}: an argument of a kernel has an ASCII name that begins with a letter"
        if name in KERNEL:
            yield f"{name}: this name belongs to the kernel; choose another one"
    for tensor in tensors:
        strides = [(f"stride{axis}", f"stride along axis {axis}") for axis in range(MOST_AXES)]
        for fact, what in (("ptr", "pointer"), ("ld", "leading dimension"), *strides):
            if f"{tensor}_{fact}" in arguments:
                yield f"{tensor}_{fact}: the {what} of {tensor} has this name in a kernel; choose another one"
    memories = dict.fromkeys(t.memory for t in machine.tensor_declarations() if t.memory.own)
    for memory in memories:
        if memory.bank in arguments:
            yield f"{memory.bank}: the bank of the memory {memory} has this name in a kernel; choose another one"
        if [m.name for m in memories].count(memory.name) > 1:
            yield f"two memories are called {memory}; give them names of their own"
    if (size := sum(m.capacity_bytes for m in memories)) > CONST_BYTES:
        listed = " and ".join(f"{m} ({m.capacity_bytes:,})" for m in memories)
        yield f"the memories {listed} have {size:,} bytes of state space const, which has {CONST_BYTES:,}"
    title = machine.__name__
    if not title.isascii() or title.startswith("_") or title.lower() in KERNEL:
        yield f"a kernel is called like its machine, and cannot be called {title.lower()!r}; choose another name"
