"""Derived problems: small ones with every fact and remainder of the real one, on which a kernel's rings go round.

A ring hides a mistake until its slots begin again: a wait that is missing, a phase that does not alternate, a slot too
many. So loops are as long as the rings in them demand, whatever the real problem's are: what a kernel was made for are
its facts, not its sizes. Only where a machine says that larger sizes are illegal is the real size the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tinygpu.expressions import compile_scalars
from tinygpu.language.machine import Machine
from tinygpu.language.posing import fitted, followed
from tinygpu.language.problem import Operand, Problem
from tinygpu.language.tensors import extent_of
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.rings import Ring
from tinygpu.ptx.verification.named_rows import fewer_rows, in_blocks, namings
from tinygpu.ptx.verification.reached import reached_sizes
from tinygpu.ptx.verification.traced import numbers_of, traced
from tinygpu.ptx.verification.within_memory import within_memory

# Rounds of a loop that no ring goes along.
PLAIN_ROUNDS = 3
# Tiles that each role of a CTA takes at least, where CTAs take tile after tile and the derived problem has so many.
TILES_PER_CTA = 3
# Rounds of a loop along a dim from which others follow that are all run.
MOST_TAPS = 11
# Tiles that are added to a dim which follows from others, until these have sizes that give it its own.
MORE_TILES = 32
# Tiles along an axis on which CTAs look back at those before them: more than a warp looks at at once.
LOOKED_BACK = 34
# Blocks that a sequence of rows has at least, where data say in which blocks they lie; elements of any dim of a loop.
LEAST_BLOCKS = 2
# Sizes of one dim that are looked at, from the smallest on.
MOST_SIZES = 4096

# Elements along an axis whose rows data cut into pieces, or give numbers of others, or whose places a program names.
PIECES = 8

Tiles = Literal["edges", "ends", "row", "pieces"]

# Wider gaps between rows are cut; offsets as large as the real ones are tried on sampled CTAs.
MOST_GAP_ELEMS = 512


@dataclass(frozen=True, slots=True)
class Aim:
    """How often the slots of rings are used for a tile.

    name      in the report: "slots used 3 times"
    least     (a ring) -> slots at least
    multiple  whether they are a multiple of the ring's depth, or are not; None: either
    exactly   slots that are wanted, and no more, of the deepest ring; None: the fewest that fit
    """

    name: str
    least: Callable[[Ring], int]
    multiple: bool | None = None
    exactly: int | None = None

    def misses(self, ring: Ring, slots: int) -> tuple[int, int]:
        """How far a number of slots is from the aim: (slots too few, whether it is the wrong kind of number)."""
        if self.exactly is not None:
            return abs(slots - min(self.exactly, ring.stages)), 0
        wrong = self.multiple is not None and ring.stages > 1 and (slots % ring.stages == 0) is not self.multiple
        return max(self.least(ring) - slots, 0), int(wrong)


def _again(ring: Ring) -> int:
    """Every slot is used once, and then some again."""
    return ring.stages + 1


def _both_phases(ring: Ring) -> int:
    """Every slot is used again in both phases; rings without phases begin again as often."""
    return 3 * ring.stages if ring.phases else 2 * ring.stages


AGAIN = Aim("slots used again", _again, multiple=False)
OTHER = Aim("more slots used again", lambda ring: ring.stages + 2, multiple=False)
DEEP = Aim("slots used again in both phases", _both_phases, multiple=False)
WHOLE = Aim("slots used twice", lambda ring: 2 * ring.stages, multiple=True)


# Loops end with a round of as little as they may, whatever remains in the real problem.
LITTLE = Aim("a last round of little", _again)


# What a role gives the next with its turn is counted by warps: a count that is one too low shows after as many turns.
TURNS = Aim("many turns, 1 slot used", lambda ring: 1, exactly=1)


def exactly(slots: int) -> Aim:
    """A tile that uses so many slots, fewer than there are."""
    return Aim(f"{slots} slot{'s' * (slots != 1)} used", lambda ring: slots, exactly=slots)


def derive(
    kernel: Kernel, machine: type[Machine], problem: Problem, aim: Aim = DEEP, tiles: Tiles = "edges"
) -> Problem:
    """The small problem on which a kernel is verified: same facts, same remainders, fewer tiles.

    tiles  "edges": along each grid axis two full tiles, or one full and one partial tile where the real problem has a
           remainder; one more where CTAs form clusters or take tile after tile, so that clusters do not divide them;
           and more than a warp looks at at once where CTAs look back
           "ends": as edges along axes where the real problem has a remainder, and one tile along the others
           "pieces": as edges, and more along axes of single rows of which integers are read
           "row": along the last axis of more than one tile as many as let one CTA take its share of them, and one along
           the others
    """
    legal = legality(kernel, machine, problem)
    units = {d: math.lcm(*[fact.divisor for fact in kernel.facts if fact.name == d]) for d in problem.dim}
    many = of_integers(machine) if tiles == "pieces" else frozenset()
    if tiles == "edges" and not kernel.rings:  # where rings go round, tiles are dear
        many = placed(kernel, machine, problem)
    least = _tiled(kernel, problem, tiles, aim, legal, many)
    listed = {name: problem.dim[name] for name, values in machine.dim_values().items() if values}
    # A loop over taps of a filter moves windows, which other dims follow from: few of them are all of them.
    taps = {name for d in machine.following_dims() for name in d.reads} & {d for d, _ in kernel.steps}
    listed |= {name: problem.dim[name] for name in taps if name in problem.dim and problem.dim[name] <= MOST_TAPS}
    least |= listed
    dims = {name: _rounded_up(least.get(name, size), units[name]) for name, size in problem.dims}
    looped = list(dict.fromkeys(d for d, _ in kernel.steps if d in dims and d not in listed))
    along = [d for d in looped if any(d in r.dims for r in kernel.rings)]
    for name in looped:
        dims[name] = _sizes(kernel, problem, name, units[name], least.get(name, 1))[0]
    # What is legal for one dim may hang on another, whose size is chosen later, and may have other remainders.
    pending = [d for d in looped if d not in along] + along
    while pending:
        untiled = sorted(pending, key=lambda d: d in least)
        tries = [*((name, True) for name in pending), *((name, False) for name in untiled)]
        found = (
            (name, _chosen(kernel, problem, dims, name, aim, units[name], least.get(name, 1), legal, kept))
            for name, kept in tries
        )
        name, chosen = next(((n, c) for n, c in found if c is not None), (pending[0], None))
        dims = chosen or dims | {name: problem.dim[name]}
        pending.remove(name)
    for dim, of, unit in in_blocks(machine, problem):
        if any(dim in r.dims for r in kernel.rings) and not {dim, of} & {*least, *looped, *dict(kernel.known)}:
            dims |= _of_rounds(kernel, dims, dim, of, unit, aim, legal)
    for named in namings(kernel, machine, problem):
        dims[named.of] = fewer_rows(kernel, problem, named.of, dims, legal)
    dims |= dict(reached_sizes(kernel, machine, problem, dims, legal))
    dims |= within_memory(kernel, machine, problem, dims, legal)
    return resized(kernel, problem, _followed(kernel, machine, problem, dims | listed, looped, legal))


def _followed(
    kernel: Kernel, machine: type[Machine], problem: Problem, dims: dict[str, int], looped: Sequence[str],
    legal: Callable[[Mapping[str, int]], bool],
) -> dict[str, int]:
    """Dims that follow from others: these others give those the sizes that were chosen, or some tiles more.

    What is legal for the others may hang on each other, as a pad that is smaller than the image: that counts as well.

    Of dims that nothing of the kernel goes along no size is chosen: they have the one that the others give them.
    """
    out, options, following = dims, dict(problem.options), machine.following_dims()
    along = {d for d, _ in (*kernel.tiles, *kernel.steps)}
    for d in (d for d in following if d.name in along):
        found: dict[str, int] = {}
        for more in range(MORE_TILES):
            wanted = out | {d.name: dims[d.name] + more * math.lcm(*(e for name, e in kernel.tiles if name == d.name))}
            found = fitted(machine.__name__, (d,), wanted, options, looped)
            if followed(machine.__name__, (d,), found, options)[d.name] == wanted[d.name] and legal(found):
                break
        else:  # none does: the real ones do
            found = out | {name: problem.dim[name] for name in (d.name, *d.reads) if name in problem.dim}
        out = found
    small = out | followed(machine.__name__, tuple(d for d in following if d.name not in along), out, options)
    facts = [f for f in kernel.facts if f.name in small]
    if min(small.values()) < 1 or any(small[f.name] % f.divisor for f in facts) or not legal(small):
        return out | {name: problem.dim[name] for d in following for name in (d.name, *d.reads) if name in problem.dim}
    return small


def _chosen(
    kernel: Kernel, problem: Problem, dims: dict[str, int], name: str, aim: Aim, unit: int, least: int,
    legal: Callable[[Mapping[str, int]], bool], kept: bool,
) -> dict[str, int] | None:
    """The dims with the smallest size of one of them that comes nearest to the aim; None where none is legal.

    kept  whether the size leaves the remainders of the real one
    """
    rings = [r for r in kernel.rings if name in r.dims]
    # Each group of a grid is a tile more: there are many where a tile is cheap, and few where rings go round.
    few = aim.exactly != 1 if name in kernel.groups else aim.exactly is not None
    rounds = 1 if few else PLAIN_ROUNDS
    # One element may be many rounds, as a page of keys: from one the loop goes to the next, but where few are wanted.
    elements = LEAST_BLOCKS if aim.exactly is None else 1
    best: tuple[tuple[int, int], dict[str, int]] | None = None
    patience = 2 * max([r.stages for r in rings], default=1)
    sizes = _sizes(kernel, problem, name, unit, least)
    for number, size in enumerate(sizes if kept else range(unit, unit * MOST_SIZES + 1, unit)):
        tried = dims | {name: size}
        if not legal(tried):
            continue
        if rings:
            misses = [aim.misses(r, int(r.slots_of(tried))) for r in rings]
            missed = (sum(m[0] for m in misses) + max(elements - size, 0), sum(m[1] for m in misses))
        else:
            missed = (max(rounds - number - 1, 0), 0)
        if best is None or missed < best[0]:
            best = missed, tried
        if missed == (0, 0):
            break
        if missed[0] == 0 or (aim.exactly is not None and missed > best[0]):
            patience -= 1
            if not patience:
                break
    return best[1] if best else None


def _of_rounds(
    kernel: Kernel, dims: Mapping[str, int], name: str, of: str, unit: int, aim: Aim,
    legal: Callable[[Mapping[str, int]], bool],
) -> dict[str, int]:
    """Sizes of a dim, and of the one that it follows from, where it says at most how many rounds data ask for: the
    smallest that come nearest to the aim. Data go from one block of them to the next, but where few slots are wanted.
    """
    least = min(dims[of], LEAST_BLOCKS) if aim.exactly is None else 1
    rings, best = [r for r in kernel.rings if name in r.dims], (dims[name] // unit, math.inf)
    for size in range(least, best[0] + 1):
        tried = {**dims, of: size, name: unit * size}
        missed = sum(aim.misses(r, int(r.slots_of(tried)))[0] for r in rings)
        if missed < best[1] and legal(tried):
            best = size, missed
        if not best[1] or size > MOST_SIZES:
            break
    return {of: best[0], name: unit * best[0]}


def _sizes(kernel: Kernel, problem: Problem, name: str, unit: int, least: int) -> list[int]:
    """Sizes of a dim with the real size's remainders, from the smallest on; from `least` on, for tiles."""
    size = problem.dim[name]
    steps = [step for d, step in kernel.steps if d == name]
    period = math.lcm(*steps) if math.lcm(*steps) <= 4 * max(steps) else max(steps)
    apart = math.lcm(period, unit)
    first = size % apart or apart
    if least > 1:  # tiles decide what remains of the last of them
        tile = math.lcm(*(e for d, e in kernel.tiles if d == name))
        both = math.lcm(tile, period)
        if steps and both <= 4 * max(tile, period):  # and what remains of the last round, where both cut it
            tile, least = both, least + (size - least) % both
        held = (least + number * tile for number in range(unit))
        first, apart = next((n for n in held if n % unit == 0), _rounded_up(least, unit)), math.lcm(unit, tile)
    return [first + number * apart for number in range(MOST_SIZES)]


def _tiled(
    kernel: Kernel, problem: Problem, tiles: Tiles, aim: Aim, legal: Callable[[Mapping[str, int]], bool],
    many: frozenset[str],
) -> dict[str, int]:
    """Sizes of the dims of the grid.

    many  dims along which there are so many pieces that most of them have others beside them
    """
    extents = {d: math.lcm(*[e for name, e in kernel.tiles if name == d]) for d, _ in kernel.tiles if d in problem.dim}
    clusters = dict(zip((d for d, _ in kernel.tiles), kernel.clusters or (1,) * len(kernel.tiles), strict=True))
    full = 2 if kernel.goes_on or kernel.clusters else 1
    out = {}
    for name, extent in extents.items():
        size = problem.dim[name]
        whole = LOOKED_BACK if name in {kernel.tiles[axis][0] for axis in kernel.chained} else full
        whole = max(whole, PIECES // extent) if name in many else whole
        edges = whole * extent + size % extent if size % extent else (whole + 1) * extent
        one = tiles == "row" or (tiles == "ends" and not size % extent)
        out[name] = min(size, extent * clusters[name] if one else edges)
    # One axis is as long as it takes for a CTA to go on to other tiles.
    wanted = max(2, -(-tiles_per_cta(kernel, aim) // kernel.slices))
    if not kernel.goes_on or _clusters_of(kernel, problem.dim | out) >= wanted:
        return out
    for name in sorted(extents, key=lambda d: problem.dim[d] <= extents[d] * clusters[d]):
        extent = extents[name] * clusters[name]
        others = _clusters_of(kernel, problem.dim | out | {name: 1})
        longer = out | {name: (-(-wanted // others) - 1) * extent + (problem.dim[name] % extent or extent)}
        if legal(problem.dim | longer):
            return longer
    return out


def placed(kernel: Kernel, machine: type[Machine], problem: Problem) -> frozenset[str]:
    """The dims of axes of the grid whose places operands or conditions name: an edge is not like the middle there."""
    program = traced(kernel, machine, problem).program
    return frozenset(dim for axis, (dim, _) in enumerate(kernel.tiles) if program.knows_places({axis}))


def of_integers(machine: type[Machine]) -> frozenset[str]:
    """The dims of tensors of declared integers, which data decide by, and those that they follow from."""
    declared = [t for t in machine.tensor_declarations() if t.values is not None and t.values.whole]
    dims = {dim for t in declared for dim in t.names()}
    return frozenset(dims.union(*(d.reads for d in machine.following_dims() if d.name in dims)))


def _clusters_of(kernel: Kernel, dims: Mapping[str, int]) -> int:
    """Tiles of the grid, those of a cluster together."""
    return math.prod(kernel.counts_of(dims))


def tiles_per_cta(kernel: Kernel, aim: Aim = DEEP) -> int:
    """Tiles, one after the other, in which each role has its share, and rings outside of loops go round."""
    constant = [-(-aim.least(r) // max(int(r.slots), 1)) for r in kernel.rings if not r.dims and r.phases]
    # Of a CTA's warps some belong to none of the roles that take turns.
    each = max(TILES_PER_CTA, (kernel.threads // 32 - 1) // kernel.turns) if aim is TURNS else TILES_PER_CTA
    if not kernel.scheduler.takes_over:
        return max([each * kernel.turns, *constant])
    # The slots of answers go round with the tiles of whoever takes others over: in both phases where tiles are short.
    answers = int(kernel.scheduler.answers)
    return max([each * kernel.turns, *constant, answers + 1 if aim.exactly is None else 3 * answers + 1])


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def legality(kernel: Kernel, machine: type[Machine], problem: Problem) -> Callable[[Mapping[str, int]], bool]:
    """Whether all that the machine says of legal sizes holds for dims, with the kernel's candidate."""
    known = numbers_of(kernel, problem)
    dims = set(problem.dim)
    conditions = [
        c.condition
        for c in traced(kernel, machine, problem).constraints
        if c.kind == "legality" and c.condition.symbols & dims and c.condition.symbols <= known.keys()
    ]
    conditions = [c for c in conditions if compile_scalars(c)(known)[0]]
    holds = compile_scalars(*conditions)
    along, options = {d for d, _ in (*kernel.tiles, *kernel.steps)}, dict(problem.options)
    following = tuple(d for d in machine.following_dims() if d.name not in along)

    def legal(changed: Mapping[str, int]) -> bool:
        small = {**problem.dim, **changed}
        return all(holds({**known, **changed, **followed(machine.__name__, following, small, options)}))

    return legal


def _fitting(kernel: Kernel, o: Operand) -> Callable[[int, int], int]:
    """(axis, least stride) -> the least from there on for which the facts about it hold."""

    def fitting(axis: int, least: int) -> int:
        for fact in kernel.facts:
            if fact.name == o.pitch(axis) and least % fact.divisor:
                least += fact.divisor - least % fact.divisor
        return least

    return fitting


def resized(kernel: Kernel, problem: Problem, dims: Mapping[str, int]) -> Problem:
    """The problem with other dims; rows and strides keep their gaps and the facts about them."""
    operands = []
    for o in problem.operands:
        names = dict(kernel.shapes)[o.name]
        shape = tuple(extent_of(d, dims) for d in names)
        operands.append(o.resized(shape, _fitting(kernel, o), MOST_GAP_ELEMS))
    made = Problem(tuple((d, dims[d]) for d, _ in problem.dims), tuple(operands), problem.options)
    kernel.check(made)
    return made
