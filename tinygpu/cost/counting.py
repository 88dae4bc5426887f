"""Counts what a program asks of a GPU: from Program to Demand, for one candidate or for arrays of them.

The counts are expressions over parameters, dims and tensor facts, made once per structure and evaluated for all
candidates at once. Of tiles inside the tensors they are what listing every lane gives, wherever rows begin
(`tinygpu.cost.pieces`); edges run the same instructions with fewer lanes. Shared-memory wavefronts are counted without
bank conflicts: the layout solver says which conflicts remain (`tinygpu.solver.buffers`); of rows that values name, the
conflicts that their distribution lets expect (`tinygpu.cost.drawn_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinygpu.cost.counts import Counts
from tinygpu.cost.demand import TensorPath
from tinygpu.cost.held import held_bytes
from tinygpu.cost.in_steps import row_of
from tinygpu.cost.look_back import chained, handed_on
from tinygpu.cost.main_loops import in_turn, main_loop, sums_of, taking, taking_sums
from tinygpu.cost.named_rows import picked_windows
from tinygpu.cost.operations import CHAIN, Operations, Tally, bytes_of, sum_of
from tinygpu.cost.passes import read_again
from tinygpu.cost.touched import picked_by_data, tensor_bytes, touched_bytes
from tinygpu.cost.useful import useful_flops
from tinygpu.expressions import Expr, ceil_div, compile_arrays, expr, maximum, minimum, where
from tinygpu.language.buffer_space import allocated_tmem_bytes, shared_bytes
from tinygpu.language.heuristic import HEURISTICS, Heuristic
from tinygpu.language.live_registers import registers_estimate
from tinygpu.language.memories import GMEM, TMEM
from tinygpu.language.tensors import Tensor
from tinygpu.program import nodes as n
from tinygpu.program.in_pieces import leaves_in_pieces
from tinygpu.program.products import used_in_rounds
from tinygpu.program.program import BRANCH_PARTS, Program
from tinygpu.program.tree import Use, places, uses, walk

# Instructions that a warp issues beside the machine's own, per loop round and per memory access: counters, slot and
# address arithmetic, predicates. Counted in the PTX of the shipped machines.
ROUND_INSTRUCTIONS = 16
PROLOGUE_INSTRUCTIONS = 60
# Of a warp that hears an answer of launch control and gives its place back (our kernels have 16 to 20).
HEARING_INSTRUCTIONS = 18
# What a row of steps is told by: the work that warps do themselves.
_OF_LANES = ("fma_flops", "alu_ops", "sfu_ops", "warp_instructions", "smem_load_wavefronts", "smem_store_wavefronts")


def count(program: Program, heuristics: tuple[str | Heuristic, ...] = HEURISTICS) -> Counts:
    """Prepares the counts of one structure; what is not among `heuristics` is counted as if it cost nothing.

    heuristics  names of the predictor's own, and costs of the machine's
    """
    counter = _Counter(program, heuristics)
    counter.run()
    named = counter.named()
    multiply = next((s for s in walk(program.body) if isinstance(s, n.Multiply)), None)
    operand, accumulator = multiply.instruction.rate(multiply.a.dtype, multiply.b.dtype) if multiply else ("", "")
    paths: dict[str, TensorPath] = {"wgmma group": "wgmma", "tcgen05 commit": "tcgen05"}
    path = paths.get(multiply.instruction.completion, "mma.sync") if multiply else "mma.sync"
    compute, expressions = compile_arrays(*named.values()), tuple(named.values())
    useful = compile_arrays(useful_flops(program))

    def in_floats(values: Mapping[str, Any]) -> Any:
        return useful({name: _float(value) for name, value in values.items()})[0]

    in_the_end = path != "mma.sync" and len(program.roles) > 1 and not counter.sums_in_rounds()
    return Counts(
        program, tuple(named), compute, operand, accumulator, heuristics, path, expressions, in_floats, in_the_end
    )


class _Counter:
    def __init__(self, program: Program, heuristics: tuple[str | Heuristic, ...]) -> None:
        self.program = program
        self.operations = Operations(program, heuristics, program.threads)
        self.phases = {"prologue": Tally(), "iteration": Tally(), "epilogue": Tally()}
        self.before_loops: dict[str, Tally] = {}  # what each role waits for there
        self.iterations: Expr = expr(1)
        roles = [s.body for s in walk(program.body) if isinstance(s, n.InRole)]
        self.in_pieces = leaves_in_pieces(program.body)
        bodies, sums = roles or [program.body], sums_of(program)
        self.main = {loop for body in bodies for loop in main_loop(body, sums)}
        # What a role does with sums that it takes once for each tile comes behind the loop that made them.
        self.behind = {s for body in bodies if not main_loop(body, sums) for s in taking(body, sums)}

    def run(self) -> None:
        loops = [s for s in walk(self.program.body) if isinstance(s, n.Repeated) and not s.written_out]
        start = "prologue" if loops else "iteration"
        self._body(self.program.body, start, expr(1))
        warps = self.operations.warps
        self.phases[start].add("warp_instructions", warps * PROLOGUE_INSTRUCTIONS)
        self.phases["prologue"].wait("fmas", 30)
        asks = minimum(self.program.grid.scheduler.answers, 1)
        self.phases["epilogue"].add("warp_instructions", asks * warps * HEARING_INSTRUCTIONS)
        self.phases["epilogue"].wait("barriers", asks)
        if loops:
            self._first_latency(self.phases["prologue"])

    def _filled_meanwhile(self, s: n.Loop) -> None:
        """Slots that copies fill while others are in use: what is brought for one of them is under way at a time.

        Each is asked for where all have met that drain another, and is waited for where it is drained itself. Where
        nobody drains another one meanwhile, all that a round asks for is under way, and waited for, together.
        """
        fills: list[n.Produce] = []
        waited: list[n.Produce] = []
        for place in places(s.body):
            fill = place.statement
            if isinstance(fill, n.Produce) and self.program.pipeline(fill.pipeline).completion == "commit group":
                (fills if place.consumes else waited).append(fill)
        if waited:
            copied = sum_of(_copied_bytes(fill.body) for fill in (*fills, *waited))
            self.phases["iteration"].in_flight_bytes = self.phases["iteration"].in_flight_bytes + copied
        elif fills:
            copied = sum_of(_copied_bytes(fill.body) for fill in fills)
            self.phases["iteration"].in_flight_bytes = ceil_div(copied, len(fills))
            self.operations.prefetch = expr(1)

    def _first_latency(self, prologue: Tally) -> None:
        """Waits once for the first data, whoever asks for them.

        A pipeline's first tile is asked for ahead of its loop, together with what is copied there, and after what was
        loaded before. Rounds that nothing runs ahead of wait for what they load themselves, each once, the first too:
        the predictor adds those, and before such a loop there is nothing to wait for but what stands there.
        """
        loaded = prologue.chain["global_loads"]
        copied = maximum(loaded, minimum(prologue.work["sectors_read"], 1))
        prologue.chain["global_loads"] = where(self.operations.prefetch >= 1, loaded + 1, copied)

    # -- walking ---------------------------------------------------------------------------------------------------
    def _body(self, body: tuple[n.Statement, ...], phase: str, times: Expr) -> str:
        """Counts statements, each executed `times` times; returns the phase that what follows belongs to."""
        for s in body:
            phase = self._statement(s, phase, times)
        return phase

    def _statement(self, s: n.Statement, phase: str, times: Expr) -> str:
        phase = "epilogue" if s in self.behind else phase
        tally = self.phases[phase]
        warps = self.operations.warps
        match s:
            case n.Pipelined() if phase == "prologue" and s in self.main:
                self.iterations = self.program.rounds_of(s)
                stages = self.program.pipeline(s.pipeline).stages
                self.operations.prefetch = stages - 1
                inner = self.phases["iteration"]
                self._body(s.produce, "iteration", expr(1))
                inner.in_flight_bytes = maximum(stages - 1, 1) * _copied_bytes(s.produce)
                self._body(s.consume, "iteration", expr(1))
                inner.add("warp_instructions", warps * ROUND_INSTRUCTIONS)
                # the barrier and the first loads of a round that loads ahead pass while its last products are made
                inner.wait("barriers", where(stages == 1, 2, 1 - s.prefetch))
                self.phases["prologue"].wait("barriers", s.prefetch)
                self.phases["prologue"].wait("smem_loads", s.prefetch)
                return "epilogue"
            case n.Loop() if not s.unrolled and phase == "prologue" and s in self.main:
                self.iterations = self.program.rounds_of(s)
                self._body(s.body, "iteration", expr(1))
                self.phases["iteration"].add("warp_instructions", warps * ROUND_INSTRUCTIONS)
                self._filled_meanwhile(s)
                return "epilogue"
            case n.Pipelined():
                self._body(s.produce, phase, times * self.program.rounds_of(s))
                self._body(s.consume, phase, times * self.program.rounds_of(s))
                tally.wait("barriers", times * self.program.rounds_of(s))
            case n.Loop():
                self._body(s.body, phase, times * self.program.rounds_of(s))
            case n.InRole():
                self._role(s, phase)
            case _ if not (taken := self.program.taken_of(s)).same(BRANCH_PARTS):
                self.phases[phase] = Tally()
                for part in s.children:
                    self._body(part.statements, phase, times)
                tally.take(self.phases[phase], taken)
                self.phases[phase] = tally
            case _:
                self.operations.add(s, tally, times, phase == "iteration")
                for part in s.children:
                    if part.consumes:
                        tally.wait("barriers", times)
                    if s in self.in_pieces:
                        tally.wait_for_slot(self.program.pipeline(part.consumes).stages, times)
                    phase = self._body(part.statements, phase, times)
        return phase

    def _role(self, s: n.InRole, phase: str) -> None:
        """Roles that work at the same time have a prologue, rounds and an epilogue each. What they wait for before
        their loops passes side by side: of each kind the CTA waits for as much as the role that waits for most of it.

        Of roles that take turns at tiles the first is counted, for the tile that is its own; of those that take turns
        within a tile, or take sums from tensor memory, each from a ring of its own, all work, and wait side by side.
        """
        role = next(r for r in self.program.roles if r.name == s.role)
        if role.share[0]:
            return
        everybody, self.operations.threads = self.operations.threads, role.threads
        before = [(tally, dict(tally.chain)) for tally in self.phases.values()]
        prologue, before_loops = self.phases["prologue"], self.before_loops.setdefault(s.role, Tally())
        prologue.chain = before_loops.chain
        self._body(s.body, phase, expr(1))
        before_loops.chain = prologue.chain
        prologue.chain = {kind: maximum(*(r.chain[kind] for r in self.before_loops.values())) for kind in CHAIN}
        self.operations.threads = everybody
        if s.role in (*in_turn(self.program)[1:], *taking_sums(self.program)[1:]):
            for tally, chain in before:
                tally.chain = chain

    # -- the whole -------------------------------------------------------------------------------------------------
    def named(self) -> dict[str, Expr]:
        p = self.program
        tiles = [a.filled for a in p.grid.axes]
        ctas = working = p.grid.scheduler.slices
        for a in p.grid.axes:
            working = working * a.filled
            # where clusters do not divide the tiles, some of their CTAs have a tile beyond the last one; of groups,
            # those that have no elements leave at once
            ctas = ctas * (a.clusters * a.cluster if a.groups.same(1) else a.filled)
        iteration = self.phases["iteration"]
        out = {
            "ctas": ctas,
            "working": working,
            "cluster": p.grid.cluster,
            "slices": p.grid.scheduler.slices,
            "threads": self.operations.threads,
            "registers": registers_estimate(p),
            "even": p.grid.scheduler.even,
            "asks": minimum(p.grid.scheduler.answers, 1),
            "handed_on": sum_of(handed_on(p, s) for s in walk(p.body) if isinstance(s, n.Preceding)),
            "chained": chained(p).tiles,
            "chains_beside": chained(p).beside,
            "smem": shared_bytes(p),
            "tmem": allocated_tmem_bytes(p),
            "turns": self._turns(),
            "multiplying_warps": self._multiplying_warps(),
            "circulating": self._circulating(),
            "scored_ahead": self._scored_ahead(),
            "iterations": maximum(self.iterations, 1),  # of rounds that are one less, where there is one
            "prefetch": self.operations.prefetch,
            "in_flight": iteration.in_flight_bytes,
        }
        out |= self._rows()
        out["slots"], out["held"] = held_bytes(p)
        for name, tally in self.phases.items():
            out |= {f"{name}.{k}": v for k, v in tally.work.items()}
            out |= {f"{name}.{k}": v for k, v in tally.chain.items()}
        read = [t for t in p.tensors if t.access != "out"]
        written = sum_of(touched_bytes(p, t, "written") for t in p.tensors if t.access != "in")
        out["written"] = written
        out["compulsory"] = sum_of(touched_bytes(p, t, "read") for t in read) + written
        return out | self._reads(read, tiles) | self._again(ctas)

    def _turns(self) -> Expr:
        """Tiles that a CTA works on at a time: roles take turns, or sums lie in slots of tensor memory."""
        sums = sums_of(self.program)
        slots = [p.stages for p in self.program.pipelines if p.name in sums]
        return maximum(max(role.share[1] for role in self.program.roles), *slots)

    def _multiplying_warps(self) -> Expr:
        """Of the roles that multiply; those that take turns at tiles are all of them."""
        names = {place.role for place in places(self.program.body) if isinstance(place.statement, n.Multiply)}
        return sum_of(role.warps for role in self.program.roles if role.name in names)

    def _taken_in_rounds(self) -> list[Use]:
        """Where warps take sums from tensor memory in their main loops: products and lanes have the slots by turns."""
        found = (u for name in sorted(sums_of(self.program)) for u in uses(self.program.body, name))
        return [u for u in found if u.does == "consume" and self.main & set(u.loops)]

    def sums_in_rounds(self) -> bool:
        """Whether what is multiplied in a round is used there: by the role itself, or by one that takes it."""
        blocks = (u for p in self.program.pipelines for u in uses(self.program.body, p.name) if u.does == "consume")
        return bool(self._taken_in_rounds()) or any(used_in_rounds(u) for u in blocks)

    def _circulating(self) -> Expr:
        """Slots that are taken there, each by itself: rings that one role takes in a round wait for each other."""
        found = self._taken_in_rounds()
        rings: dict[str, set[str]] = {}
        for role in dict.fromkeys(u.place.role for u in found):
            taken = {u.body.consumes for u in found if u.place.role == role}
            for name in list(taken):
                taken |= rings.get(name, {name})
            rings |= dict.fromkeys(taken, taken)
        apart = {min(together) for together in rings.values()}
        return sum_of(p.stages for p in self.program.pipelines if p.name in apart)

    def _scored_ahead(self) -> Expr:
        """1: what lanes make of some sums is handed over in slots of its own, and the next sums are made meanwhile."""
        sums = sums_of(self.program)
        by = {p.role for p in places(self.program.body) if isinstance(p.statement, n.Multiply)}
        filled = [p.name for p in self.program.pipelines if any(b.memory is TMEM for b in p.buffers)]
        taken = (u for name in filled if name not in sums for u in uses(self.program.body, name))
        return expr(int(any(u.does == "consume" and u.place.role in by and self.main & set(u.loops) for u in taken)))

    def _rows(self) -> dict[str, Expr]:
        """Of each role that takes them, what one of its rounds asks of issue slots and lanes, step by step."""
        out: dict[str, Expr] = {}
        loops = {u.place.role: loop for u in self._taken_in_rounds() for loop in u.loops if loop in self.main}
        for role in self.program.roles:
            if role.name in loops:
                own = Operations(self.program, self.operations.heuristics, role.threads)
                for number, step in enumerate(row_of(loops[role.name], own)):
                    amounts = {unit: step.work[unit] for unit in _OF_LANES} | dict(step.chain)
                    out |= {f"row.{role.name}.{number}.{what}": amount for what, amount in amounts.items()}
        return out

    def _again(self, ctas: Expr) -> dict[str, Expr]:
        """Of each further pass over a tensor: bytes of the whole launch, and what a CTA moves until then."""
        out: dict[str, Expr] = {}
        sizes = {t.name: tensor_bytes(t) for t in self.program.tensors}
        for number, again in enumerate(read_again(self.program)):
            out[f"again{number}.bytes"] = minimum(ctas * again.bytes, sizes[again.tensor])
            out[f"again{number}.distance"] = again.distance
        return out

    def _reads(self, read: list[Tensor], tiles: list[Expr]) -> dict[str, Expr]:
        """Row and column panels of a grid with two axes, and what is read once."""
        if len(tiles) != 2:
            return {"read_once": sum_of(touched_bytes(self.program, t, "read") for t in read)}
        axes = self.program.grid.axes
        panels = [expr(0), expr(0)]
        once = expr(0)
        for t in read:
            along = {i for i, a in enumerate(axes) if str(a.size) in t.dims}
            if picked_windows(self.program, t, "read"):
                once = once + touched_bytes(self.program, t, "read")
            elif len(along) == 1:
                index = along.pop()
                other = expr(1)
                picked = picked_by_data(self.program, t)
                for place, d in enumerate(t.dims):
                    if d != str(axes[index].size) and place not in picked:
                        other = other * t.size(place)
                # nothing is read beyond the end; and of groups, the next ones read what lies beyond one's own
                rows = minimum(axes[index].extent * tiles[index], axes[index].size)
                panels[index] = panels[index] + ceil_div(rows * other * t.dtype.bits // 8, tiles[index])
            else:
                once = once + tensor_bytes(t)
        written = sum_of(expr(t.dtype.bits) for t in self.program.tensors if t.access != "in")
        # Where data pick what a group reads, as a matrix for each, the grid is one for each group that has tiles.
        of_their_own = not axes[0].groups.same(1) and any(picked_by_data(self.program, t) for t in read)
        groups = minimum(axes[0].groups, tiles[0]) if of_their_own else expr(1)
        return {
            "read_once": once,
            "row_panel": panels[0],
            "column_panel": panels[1],
            "tile_bytes": axes[0].extent * axes[1].extent * written // 8,
            "tiles0": ceil_div(tiles[0], groups) if of_their_own else tiles[0],
            "groups": groups,
            "tiles1": tiles[1],
            "group": self.program.grid.raster,
        }


def _float(value: Any) -> Any:
    """A number, or an array of them, in floats; anything else as it is."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64) if value.dtype.kind in "iu" else value
    return float(value) if isinstance(value, int | np.integer) else value


def _copied_bytes(body: tuple[n.Statement, ...]) -> Expr:
    return sum_of(bytes_of(tile) for s in walk(body) for tile in s.reads if tile.memory is GMEM)
