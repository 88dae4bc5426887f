"""What lowering knows while it writes one kernel: the filled-in program, its arguments, and the values of indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sympy

from tinygpu.expressions import Expr, FloorDiv, Remainder, symbol
from tinygpu.language.register_windows import window_values
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout
from tinygpu.program import nodes as n
from tinygpu.program.groups import Groups, groups
from tinygpu.program.in_place import meetings
from tinygpu.program.placement import Placement
from tinygpu.program.program import Program
from tinygpu.ptx.launching.kernel import TensorMapSpec
from tinygpu.ptx.lowering.emitter import Emitter, Number, Reg
from tinygpu.ptx.lowering.pipe import Pipe
from tinygpu.ptx.lowering.registers import RegisterTile
from tinygpu.ptx.lowering.signs import may_be_negative
from tinygpu.ptx.lowering.sync import Recording
from tinygpu.schedulers.scheduler import TileScheduler, Walk, Work

# The words of setp for comparisons.
RELATIONS: Mapping[type, str] = {
    sympy.Eq: "eq", sympy.Ne: "ne", sympy.Lt: "lt", sympy.Le: "le", sympy.Gt: "gt", sympy.Ge: "ge",
}  # fmt: skip


class LoweringError(Exception):
    """A program that cannot be written as PTX, with the sentence that says why."""


@dataclass(slots=True)
class Facts:
    """What a kernel may rely on, and what it did rely on: divisibility of dims, leading dimensions and pointers."""

    values: dict[str, int]
    used: dict[tuple[str, int], None] = field(default_factory=dict)

    def divides(self, divisor: int, name: str) -> bool:
        """Whether the problem's `name` is a multiple of `divisor`; if so the kernel is specialised for it."""
        if divisor <= 1 or name.isdigit():
            return int(name) % divisor == 0 if name.isdigit() else True
        if self.values[name] % divisor:
            return False
        self.used[(name, divisor)] = None
        return True


@dataclass(slots=True, eq=False)
class Context:
    """The state of lowering one program."""

    program: Program
    facts: Facts
    placement: Placement
    emit: Emitter = field(default_factory=Emitter)
    protocol: Recording = field(default_factory=Recording)
    arguments: dict[str, Reg] = field(default_factory=dict)  # dims, NAME.ptr, NAME.ld and scalars
    indices: dict[str, Number] = field(default_factory=dict)  # tile numbers and loop counters
    index_limits: dict[str, int] = field(default_factory=dict)  # largest value of a loop counter, where known
    spans: dict[str, tuple[str, int]] = field(default_factory=dict)  # index -> (dim that it counts through, step)
    quotients: dict[str, Any] = field(default_factory=dict)  # terms of offsets, by what they are called there
    tiles: dict[str, RegisterTile] = field(default_factory=dict)
    slots: dict[str, Number] = field(default_factory=dict)  # pipeline -> slot in use (a number or a register)
    following: dict[str, Number] = field(default_factory=dict)  # pipeline of the role's own -> slot whose turn it is
    walk: Walk | None = None  # which tiles (or clusters of tiles) the CTA takes
    work: Work | None = None  # the one that it works on, and what it does of it
    thread: Reg | None = None  # thread id within the role
    role: str = ""
    one_issues: bool = False  # of all threads of the role, one issues what engines carry out
    elected: Reg | None = None  # whether this thread is that one, behind the last time that its warp came together
    threads: int = field(init=False)  # threads of the role
    looping: bool = False  # a run-time loop is around the current place
    filled: set[str] = field(default_factory=set)  # pipelines of which a slot was filled outside pipelined loops
    dirty: bool = False  # shared memory was used since the last barrier
    met: bool = False  # all threads have met right before the current place, where a slot was drained
    turn: Reg | None = None  # bytes to the place in which warps exchange something, of the two that a role has
    cluster_turn: Reg | None = None  # the same of what the CTA leaves for others of its cluster
    barrier_id: int = 0  # the role's own barrier; 0: all threads are one role
    maps: list[tuple[TensorMapSpec, Reg]] = field(default_factory=list)  # tensor maps and where their address is
    workspace: dict[str, Reg] = field(default_factory=dict)  # name -> where its address is
    tmem: Reg = field(init=False)  # address of the first column of tensor memory that the CTA has
    added: dict[str, Reg] = field(default_factory=dict)  # accumulator there -> whether something was added up in it
    pipes: dict[str, Pipe] = field(default_factory=dict)  # the role's places in pipelines between roles
    dims: Mapping[str, int] = field(init=False)  # what sizes are at least
    meetings: frozenset[n.Statement] = field(init=False)  # before which the role's threads meet, of tensors in place
    groups: Groups = field(init=False)  # where roles wait for wgmma, and give back slots that it has read
    first_step: int = field(init=False)  # rows from one warpgroup's part of a tile to the next
    spots: dict[tuple[int, str], Any] = field(default_factory=dict)  # what a probed kernel records
    log: Reg = field(init=False)  # where its thread goes on recording
    log_bytes: int = 0  # of the log of each thread
    # wgmma put off until the threads have written their operands, with the statement that it belongs to
    products: list[tuple[n.Statement, str]] = field(default_factory=list)
    # what is done behind a statement, in the rounds in which indices have these values
    behind: list[tuple[n.Statement, dict[str, int], Callable[[], None]]] = field(default_factory=list)
    # loads of matrices put off until a product takes what they load: by register, the statement and the line
    fragments: dict[Reg, tuple[n.Statement, str]] = field(default_factory=dict)
    under_way: n.Statement | None = None  # what the lines that are printed belong to

    def __post_init__(self) -> None:
        of_tensors = {d for t in self.program.tensors for d in t.dims}
        self.dims = dict.fromkeys(of_tensors.union(*(a.tiles.symbols for a in self.program.grid.axes)), 1)
        self.meetings = meetings(self.program)
        self.groups = groups(self.program.body, self.program.of_one_slot)

    @property
    def scheduler(self) -> TileScheduler:
        """How tiles are dealt."""
        try:
            return self.program.grid.scheduler.settled()
        except ValueError as error:
            raise LoweringError(str(error)) from None

    @contextmanager
    def printing(self, s: n.Statement) -> Iterator[None]:
        """What is printed meanwhile belongs to a statement."""
        around, self.under_way = self.under_way, s
        yield
        self.under_way = around

    def registers_of(self, tile: Tile) -> RegisterTile:
        """The registers of a value, or of a window of one."""
        whole = self.tiles[tile.name]
        part = tile.part
        if part is None or part.window_of is None or part.partition is None:
            return whole
        begins = [self.number(offset) for offset in part.offset]
        numbers = [begin for begin in begins if isinstance(begin, int)]
        if len(numbers) != len(begins):
            raise LoweringError(f"{tile} begins where no number is known before the launch")
        return whole.part(window_values(part.window_of, part.partition, numbers))

    # -- threads, warps and clusters -------------------------------------------------------------------------------
    def lane(self) -> Number:
        return self.emit.rem(self.arguments["tid"], 32)

    def engine(self, text: str, where: Reg | None = None) -> None:
        """A statement that an engine carries out: issued once, by the elected thread, where one issues for its role.

        where  only where this predicate holds
        """
        with self.electing(anew=False):
            given = self.elected
            if given is not None and where is not None:
                given = self.emit.new("p")
                self.emit.line(f"and.pred {given}, {self.elected}, {where};")
            given = given or where
            self.emit.line(text if given is None else f"@{given} {text}")

    @contextmanager
    def electing(self, anew: bool = True) -> Iterator[None]:
        """A block in which one thread, which the warp elects here, issues what engines carry out.

        It is the same one every time (PTX ISA, elect.sync). The warp stays together: threads that wait for a phase
        cannot be a phase behind others that have issued what completes the next, and the assembler sees that one
        thread issues. Of threads that compare their numbers it does not, and puts a loop over the lanes around it.
        """
        around = self.elected
        if self.one_issues and (anew or around is None):
            self.elected = self.emit.new("p")
            self.emit.line(f"elect.sync _|{self.elected}, 0xffffffff;")
        yield
        self.elected = around

    @contextmanager
    def electing_of_warp(self) -> Iterator[None]:
        """The same where one warp of a role is to issue, which comes here alone."""
        issues, self.one_issues = self.one_issues, True
        with self.electing():
            yield
        self.one_issues = issues

    def role_thread(self) -> Reg:
        if self.thread is None:
            raise LoweringError("no role is open")
        return self.thread

    def uniform_warp_of_cta(self) -> Number:
        """The warp's number in the CTA, visibly the same for all its lanes."""
        warp = self.emit.div(self.arguments["tid"], 32)
        return self.emit.computed("r", "shfl.sync.idx.b32 {d}, {0}, 0, 31, 0xffffffff;", warp)

    def uniform_warp(self) -> Number:
        """The same in the role."""
        first = next((int(r.first) for r in self.program.roles if r.name == self.role), 0)
        return self.emit.sub(self.uniform_warp_of_cta(), first)

    @property
    def cluster_size(self) -> int:
        return int(self.program.grid.cluster)

    def cluster_extent(self, axis: int | None) -> int:
        """CTAs of a cluster along an axis of the grid; 1 where there is no such axis."""
        return 1 if axis is None else int(self.program.grid.axes[axis].cluster)

    def cluster_of(self, index: str) -> int:
        """CTAs of a cluster along the axis of the grid that has this index; 1 for other indices."""
        return next((int(a.cluster) for a in self.program.grid.axes if a.index == index), 1)

    def _below(self, axis: int) -> int:
        """Distance in rank between neighbours along an axis: the last axis runs fastest."""
        below = 1
        for other in self.program.grid.axes[axis + 1 :]:
            below *= int(other.cluster)
        return below

    def cluster_rank(self, axis: int) -> Number:
        """The CTA's place in its cluster along an axis of the grid."""
        extent = self.cluster_extent(axis)
        if extent == 1:
            return 0
        rank = self.emit.computed("r", "mov.u32 {d}, %cluster_ctarank;")
        return self.emit.rem(self.emit.div(rank, self._below(axis)), extent)

    def rank_in_pair(self) -> Number:
        """0 in the first CTA of a pair, 1 in the second: they are neighbours along the last axis."""
        return self.emit.rem(self.cluster_rank(len(self.program.grid.axes) - 1), 2)

    def first_of_pair(self) -> Number:
        """The rank of the first CTA of the own pair."""
        rank = self.emit.computed("r", "mov.u32 {d}, %cluster_ctarank;")
        return self.emit.computed("r", "and.b32 {d}, {0}, -2;", rank)

    def cluster_rank_of(self, places: Mapping[int, Number]) -> Number:
        """The rank of the CTA at these places along some axes, and at the own place along all others."""
        total: Number = 0
        for axis in range(len(self.program.grid.axes)):
            place = places[axis] if axis in places else self.cluster_rank(axis)
            total = self.emit.add(total, self.emit.mul(place, self._below(axis)))
        return total

    def cluster_mask(self, axis: int, every: int = 1) -> Reg:
        """The CTAs of a cluster along an axis, the own one among them, as a mask of ranks; or every so many of them."""
        along = sum(1 << place * self._below(axis) for place in range(0, self.cluster_extent(axis), every))
        start = self.cluster_rank_of({axis: self.emit.rem(self.cluster_rank(axis), every)})
        mask = self.emit.computed("r", "shl.b32 {d}, {1}, {0};", start, along)
        return self.emit.computed("h", "cvt.u16.u32 {d}, {0};", mask)

    def cluster_number(self) -> Number:
        """The number of the CTA's cluster in the grid; of the CTA where it is alone."""
        cta = self.emit.computed("r", "mov.u32 {d}, %ctaid.x;")
        return self.emit.div(cta, self.cluster_size)

    # -- values ----------------------------------------------------------------------------------------------------
    def number(self, e: Expr) -> Number:
        """The run-time value of an expression over dims, tensor facts and indices, in 32 bits: signed where it may be
        negative.
        """
        return self._number(e.sympy)

    def count(self, e: Expr) -> Number:
        """The same of what counts something: 0 where it is negative."""
        number = self._number(e.sympy)
        return self.emit.not_below_zero(number) if self._may_be_negative(e.sympy) else number

    def _may_be_negative(self, node: Any) -> bool:
        known = {name: value for name, value in self.indices.items() if isinstance(value, int)}
        return may_be_negative(node, self.dims, known)

    def _number(self, node: Any) -> Number:
        emit = self.emit
        if node.is_Integer:
            return int(node)
        if node.is_Symbol:
            if node.name in self.indices:
                return self.indices[node.name]
            if node.name in self.arguments:
                return self.arguments[node.name]
            raise LoweringError(f"{node.name} has no value here")
        if node.is_Add:
            total: Number = 0
            for arg in sorted(node.args, key=lambda a: a.is_Integer):
                total = emit.add(total, self._number(arg))
            return total
        if node.is_Mul:
            product: Number = 1
            for arg in node.args:
                product = emit.mul(product, self._number(arg))
            return product
        if isinstance(node, FloorDiv):
            quotient = emit.floor_div if self._may_be_negative(node.args[0]) else emit.div
            return quotient(self._number(node.args[0]), self._number(node.args[1]))
        if isinstance(node, Remainder):
            rest = emit.floor_rem if self._may_be_negative(node.args[0]) else emit.rem
            return rest(self._number(node.args[0]), self._number(node.args[1]))
        if isinstance(node, sympy.Max) and sympy.S.Zero in node.args:
            return emit.not_below_zero(self._number(sympy.Max(*(a for a in node.args if a != 0))))
        if isinstance(node, sympy.Min | sympy.Max):
            choose = emit.minimum if isinstance(node, sympy.Min) else emit.maximum
            signed = any(map(self._may_be_negative, node.args))
            out = self._number(node.args[0])
            for arg in node.args[1:]:
                out = choose(out, self._number(arg), signed)
            return out
        if node.is_Pow and node.exp.is_Integer and node.exp > 0:
            power = base = self._number(node.base)
            for _ in range(int(node.exp) - 1):
                power = emit.mul(power, base)
            return power
        raise LoweringError(f"{Expr(node)} cannot be computed in a kernel")

    def condition(self, e: Expr) -> Number:
        """Whether a condition over dims, tensor facts and indices holds, as a predicate; True or False where it is
        known. What is subtracted on one side stands on the other, so that what is compared is negative only where a
        minimum, a quotient or the like is.
        """
        return self._condition(e.sympy)

    def _condition(self, node: Any) -> Number:
        emit = self.emit
        if node in (sympy.true, sympy.false):
            return bool(node)
        if isinstance(node, sympy.And | sympy.Or):
            join = emit.both if isinstance(node, sympy.And) else emit.either
            out = self._condition(node.args[0])
            for arg in node.args[1:]:
                out = join(out, self._condition(arg))
            return out
        if isinstance(node, sympy.Not):
            return emit.negated(self._condition(node.args[0]))
        relation = RELATIONS.get(type(node))
        if relation is None:
            raise LoweringError(f"{Expr(node)} cannot be computed in a kernel")
        terms = sympy.Add.make_args((node.lhs - node.rhs).expand())
        left = sympy.Add(*(t for t in terms if not t.could_extract_minus_sign()))
        right = sympy.Add(*(-t for t in terms if t.could_extract_minus_sign()))
        signed = self._may_be_negative(left) or self._may_be_negative(right)
        return emit.holds(relation, self._number(left), self._number(right), signed)

    def value(self, name: str) -> Number:
        """The run-time value of an index or a dim, or of a quotient or remainder that an offset names."""
        return self._number(self.quotients[name] if name in self.quotients else symbol(name).sympy)

    def below_zero(self, name: str) -> bool:
        """Whether that may be negative."""
        return name in self.quotients and self._may_be_negative(self.quotients[name])

    def affine(self, e: Expr) -> tuple[int, tuple[tuple[str, int], ...]]:
        """An offset as (constant, ((index, coefficient), ...)); indices that are numbers by now are folded in."""
        constant, terms = 0, []
        for node, coefficient in e.sympy.as_coefficients_dict().items():
            if node == sympy.S.One:
                constant += int(coefficient)
                continue
            value = self._number(node) if isinstance(node, FloorDiv | Remainder) else self.indices.get(str(node))
            if not node.is_Symbol and not isinstance(node, FloorDiv | Remainder):
                raise LoweringError(f"the offset {e} is not a sum of multiples of indices, quotients and remainders")
            if isinstance(value, int):
                constant += int(coefficient) * value
                continue
            name = node.name if node.is_Symbol else str(node)
            self.quotients[name] = node
            terms.append((name, int(coefficient)))
        return constant, tuple(sorted(terms))

    def size(self, tensor: Tensor, axis: int) -> Number:
        """Elements of a tensor along an axis."""
        return self.number(tensor.size(axis))

    def thread_part(self, threads: Layout, axis: int) -> Number:
        """The part of the coordinate along `axis` that the thread id decides."""
        thread = self.role_thread()
        total: Number = 0
        below = 1
        for size, stride in threads.digits_along(axis):
            if stride:
                digit = self.emit.div(thread, below)
                if below * size != self.threads:
                    digit = self.emit.rem(digit, size)
                total = self.emit.add(total, self.emit.mul(digit, stride))
            below *= size
        return total
