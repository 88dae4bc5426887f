"""A pipeline inside a trace: what `program` holds while it produces, consumes, or takes turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import TMEM, Memory
from tinygpu.language.roles import ARRIVALS
from tinygpu.language.tile import Tile, buffer_tile
from tinygpu.language.tracing.record import DONE, Record
from tinygpu.layouts.layout import Layout
from tinygpu.program import nodes as n
from tinygpu.program.tree import uses, walk


@dataclass(frozen=True, slots=True, eq=False)
class BufferSpec:
    """What `p.smem` and `p.buffer` describe; it gets its name from the pipeline that hands it over."""

    memory: Memory
    dtype: DType
    shape: tuple[Expr, ...]
    contiguous: int
    pad: Expr
    layout: str
    swizzle_bytes: Expr | None = None
    over: str = ""
    path: Layout | None = None
    atom_bytes: int = 16
    padded: bool = False


@dataclass(slots=True)
class Slot:
    """The buffers of one slot, by name."""

    tiles: dict[str, Tile]

    def __getattr__(self, name: str) -> Tile:
        try:
            return self.tiles[name]
        except KeyError:
            raise AttributeError(f"the pipeline hands over {', '.join(self.tiles)}; there is no {name!r}") from None


@dataclass(slots=True, eq=False)
class Ring:
    """`with ring.produce() as slot`, `with ring.consume() as slot`, or, without buffers, `with ring.turn()`."""

    tracer: Record
    name: str
    buffers: tuple[Buffer, ...]

    @contextmanager
    def produce(self) -> Iterator[Slot]:
        """The role acquires the next empty slot, fills it, and commits it where the block ends."""
        with self._use("produce") as body:
            yield self._slot()
        self.tracer.emit(n.Produce(self.name, tuple(body)))

    @contextmanager
    def consume(self, prefetch: Operand = 0) -> Iterator[Slot]:
        """The role waits for the next full slot, uses it, and releases it where the block ends.

        prefetch  0 or 1, perhaps a parameter: 1 loads what the first step of the unrolled loop in the block takes from
                  the slot a round ahead, behind that round's barrier and before its last products. For a slot that the
                  same role fills in a loop, with two stages and two steps at least
        """
        with self._use("consume") as body:
            yield self._slot()
        self.tracer.emit(n.Consume(self.name, tuple(body), expr(prefetch)))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The role waits for its turn; afterwards it is the turn of the next role."""
        with self._use("turn") as body:
            yield
        self.tracer.emit(n.Consume(self.name, tuple(body)))

    @contextmanager
    def _use(self, verb: str) -> Iterator[list[n.Statement]]:
        tracer = self.tracer
        if tracer.current_role is None:
            raise tracer.fail(
                f"pipeline {self.name!r} is {DONE[verb]} outside a role; say which warps do it with `with p.role(...)`"
            )
        if self.buffers and verb == "turn":
            named = ", ".join(b.name for b in self.buffers)
            raise tracer.fail(
                f"pipeline {self.name!r} hands over {named}: write produce() and consume() instead of turn()"
            )
        if not self.buffers and verb != "turn":
            raise tracer.fail(f"pipeline {self.name!r} hands over no buffers: write turn() instead of {verb}()")
        if self.name in tracer.slots:
            raise tracer.fail(f"pipeline {self.name!r} is {DONE[verb]} inside its own {tracer.slots[self.name]}()")
        tracer.slots[self.name] = verb
        with tracer.nested() as body:
            yield body
        del tracer.slots[self.name]

    def _slot(self) -> Slot:
        return Slot({b.name.split(".")[-1]: buffer_tile(b) for b in self.buffers})


def completion(body: tuple[n.Statement, ...], pipeline: str, buffers: tuple[Buffer, ...]) -> str:
    """How a slot is completed: by what fills it asynchronously; of plain stores by a barrier of their role, or, where
    they go to tensor memory or another role reads them, by the arrivals of the warps that store.
    """
    found = list(uses(body, pipeline))
    produced = [u.body for u in found if u.does == "produce"]
    if not produced:
        return "turn"
    inside = [s for slot in produced for s in walk(slot.statements)]
    completions = [t.completion for s in inside for t in s.tokens if t.buffer.startswith(f"{pipeline}.")]
    if completions:
        return completions[-1]
    stored = {tile.name for s in inside for tile in s.writes} & {b.name for b in buffers}
    producing, consuming = ({u.place.role for u in found if u.does == does} for does in ("produce", "consume"))
    handed_on = bool(stored) and not producing & consuming
    return ARRIVALS if handed_on or any(b.memory is TMEM for b in buffers) else "barrier"
