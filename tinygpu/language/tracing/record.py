"""What tracing knows of a program so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, expr
from tinygpu.language.declared import Declared
from tinygpu.language.memories import RMEM
from tinygpu.language.operators import Link
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.register_windows import is_multiple
from tinygpu.language.roles import Pipeline, Role, Token
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.users_code import line_under_way

# What is done with a slot inside `produce()`, `consume()` and `turn()` of a pipeline.
DONE = {"produce": "produced", "consume": "consumed", "turn": "taken in turns"}


@dataclass(slots=True, eq=False)
class Record:
    """The state of one trace; `self.machine` is the instance whose structural choices are made."""

    machine: Declared
    constraints: list[Constraint] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    pipelines: list[Pipeline] = field(default_factory=list)
    grid_node: n.Grid | None = None
    bodies: list[list[n.Statement]] = field(default_factory=lambda: [[]])
    counter: int = 0
    unused: dict[str, str] = field(default_factory=dict)
    siblings: dict[str, tuple[str, ...]] = field(default_factory=dict)  # value -> those made with it; one may be wanted
    places: dict[str, str] = field(default_factory=dict)  # value or pipeline -> the user's line that made it
    begun: str = ""  # the user's line where the block began that is written down next
    owners: dict[str, str] = field(default_factory=dict)  # register value -> role
    slots: dict[str, str] = field(default_factory=dict)  # pipeline -> what is being done with its slot
    current_role: Role | None = None
    counted: dict[str, tuple[Expr, Expr, Expr]] = field(default_factory=dict)  # index of a loop -> (extent, step, 1)
    unrolled: dict[str, Expr] = field(default_factory=dict)  # index of a loop that is written out -> rounds
    rounds: list[str] = field(default_factory=list)  # indices of those around the current place
    depth: int = 0  # loops around the current place
    divided: Expr | None = None  # rounds of the loops that the CTAs that share a tile divide
    fixing_up: bool = False  # whether only the last of them gets here
    elements: dict[tuple[str, tuple[Any, ...]], str] = field(default_factory=dict)  # (tensor, indices) -> number
    defined: dict[str, list[n.Statement]] = field(default_factory=dict)  # number that data say -> the body that has it
    untils: set[Any] = field(default_factory=set)  # extents that p.until gave
    gone: dict[str, str] = field(default_factory=dict)  # value of a branch or loop that has ended -> why it is gone
    fixed_up: set[str] = field(default_factory=set)  # register values of which CTAs had a part each
    link: Link | None = None  # what operators between register tiles are carried out by

    def emit(self, statement: n.Statement) -> None:
        """Writes a statement down, with the user's line: of a block that where it begins."""
        self.bodies[-1].append(replace(statement, place=self.begun or line_under_way()))
        self.begun = ""

    @contextmanager
    def _ending(self, why: str) -> Iterator[None]:
        """What is made inside is not there behind it."""
        made = set(self.places)
        yield
        for name in set(self.places) - made:
            self.gone.setdefault(name, why)

    @contextmanager
    def nested(self) -> Iterator[list[n.Statement]]:
        body: list[n.Statement] = []
        begun = line_under_way()
        self.bodies.append(body)
        try:
            yield body
        finally:
            self.bodies.pop()
        self.begun = begun

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def fail(self, sentence: str) -> DeclarationError:
        return DeclarationError(f"{type(self.machine).__name__}.program: {sentence}")

    def _number(self) -> int:
        self.counter += 1
        return self.counter

    def _name(self, prefix: str) -> str:
        return f"{prefix}{self._number()}"

    def require(self, conditions: tuple[Condition, ...]) -> None:
        for c in conditions:
            self.constraints.append(Constraint(c.name, c.condition, c.sentence, "legality", "partition", "emulator"))

    def _use(self, tile: Tile) -> None:
        self._owned(tile)
        if tile.name in self.fixed_up:
            raise self.fail(f"%{tile.name} is what one CTA had of its tile, and was fixed up; use what p.fix_up yields")
        for name in self.siblings.get(tile.name, (tile.name,)):
            self.unused.pop(name, None)
        if tile.viewed is not None and tile.partition is not None:
            self.require(tile.partition.conditions)
        part = tile.part
        if part is not None and part.window_of is not None and part.partition is not None:
            self.require(part.partition.conditions)
            self._register_window(part, part.window_of)

    def _forget(self, names: Iterable[str]) -> None:
        """Values of these names stood in what is no part of the program, and later ones have their names."""
        for name in names:
            self.unused.pop(name, None)

    def _register_window(self, tile: Tile, whole: Partition) -> None:
        """A window of registers begins where lowering knows, at a multiple of its extent, and lies within the value."""
        for axis, (begin, extent, of) in enumerate(zip(tile.offset, tile.shape, whole.shape, strict=True)):
            along = f"along axis {axis}"
            if launched := sorted(begin.symbols - self.unrolled.keys() - {p.name for p in self.machine.params()}):
                raise self.fail(
                    f"{tile} begins at {begin} {along}, and which registers hold it has to be known before the launch; "
                    f"{launched[0]} is not: let p.unroll give it"
                )
            if not is_multiple(begin, extent):
                wanted = f"a window of registers begins at a multiple of its extent, {extent}"
                raise self.fail(f"{tile} begins at {begin} {along}; {wanted}")
            last = begin.substitute({index: trips - 1 for index, trips in self.unrolled.items()})
            if not begin.same(0):
                within = last + extent <= of
                sentence = f"the windows of %{tile.name} lie within it"
                self.require((Condition(f"windows of %{tile.name} {along}", within, sentence),))

    def _owned(self, tile: Tile) -> None:
        """A register value belongs to the role that made it, and to the branch or the loop."""
        if tile.name in self.gone:
            raise self.fail(f"%{tile.name} is made {self.gone[tile.name]}")
        owner = self.owners.get(tile.name)
        if owner is not None and self.current_role is not None and owner != self.current_role.name:
            raise self.fail(
                f"%{tile.name} lies in the registers of role {owner!r}, and role {self.current_role.name!r} uses it; "
                "hand it over through a pipeline"
            )

    def _written(self, tile: Tile) -> None:
        """What a statement changes is a whole value."""
        self._owned(tile)
        if tile.part is not None:
            raise self.fail(f"{tile} is a window of registers, which is read; a statement changes whole values")

    def _value(self, kind: DType, partition: Partition, what: str) -> Tile:
        name = self._name("v")
        self.unused[name] = what
        self.places[name] = line_under_way()
        if self.current_role is not None:
            self.owners[name] = self.current_role.name
        zero = tuple(expr(0) for _ in partition.shape)
        return Tile(name, RMEM, kind, partition.shape, zero, (), None, None, partition, link=self.link)

    def _stored(self, value: Tile, kind: DType) -> Tile:
        """What is stored of a value where elements of a type lie."""
        return value

    def _token(self, target: Tile, completion: str) -> Token | None:
        return Token(self._number(), target.name, completion) if completion else None
