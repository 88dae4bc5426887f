"""A program as text, one line per statement."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.expressions import Expr
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n


def listing(program: n.Program) -> str:
    return "\n".join(_program(program))


def _program(p: n.Program) -> Iterator[str]:
    structure = ", ".join(f"{k}={v}" for k, v in p.structure)
    yield f"program {p.machine}({structure})"
    turns = frozenset(pipe.name for pipe in p.pipelines if not pipe.buffers)
    for t in p.tensors:
        yield f"  {t.access:5} {t.name}: {t.dtype}[{', '.join(t.dims)}] {t.major}-major"
    for s in p.scalars:
        yield f"  scalar {s.name}: {s.dtype}"
    for r in p.roles:
        budget = f", {r.registers} registers" if r.registers else ""
        share = f", tiles {r.share[0]} of every {r.share[1]}" if r.share[1] > 1 else ""
        yield f"  role {r.name}: {r.warps} warps from {r.first}{budget}{share}"
    for pipe in p.pipelines:
        stages = f"{pipe.stages} stages, " if pipe.buffers else ""
        yield f"  pipeline {pipe.name}: {stages}{pipe.completion}"
        for b in pipe.buffers:
            layout = f" as {b.layout}" if b.layout else ""
            shape = ", ".join(map(str, b.shape))
            yield f"    {b.memory} {b.name}: {b.dtype}[{shape}], axis {b.contiguous} contiguous, pad {b.pad}{layout}"
    axes = ", ".join(f"{a.index} in {a.size}/{a.extent}" for a in p.grid.axes)
    how = " persistent" if p.grid.persistent else ""
    cluster = " x ".join(str(a.cluster) for a in p.grid.axes)
    parts = "" if p.grid.parts.same(1) else f"; {p.grid.parts} parts of each tile"
    parts += "" if p.grid.stream_k.same(0) else f"; stream-K: {p.grid.stream_k}"
    yield f"  grid {axes}; groups of {p.grid.group}; clusters of {cluster}{how}{parts}"
    yield from _body(p.body, "    ", turns)


def _body(body: tuple[n.Statement, ...], indent: str, turns: frozenset[str]) -> Iterator[str]:
    for s in body:
        match s:
            case n.Constant():
                yield f"{indent}{s.result} = {s.value:g}"
            case n.Load():
                yield f"{indent}{s.result} = {s.name} {s.source}"
            case n.Store():
                yield f"{indent}{s.target} = {s.name} {s.value}"
            case n.Copy():
                everywhere = f" to the cluster along {s.multicast}" if s.multicast is not None else ""
                yield f"{indent}{_token(s)}{s.target} = {s.name} {s.source}{everywhere}"
            case n.Apply():
                operands = ", ".join(_operand(o) for o in s.operands)
                yield f"{indent}{s.result} = {s.name} {operands}"
            case n.Multiply():
                yield f"{indent}{_token(s)}{s.accumulator} += {s.name} {s.a}, {s.b}"
            case n.Reduce():
                yield f"{indent}{s.result} = {s.name} {s.source} along {s.axis}"
            case n.Loop():
                yield f"{indent}{'unrolled' if s.unrolled else 'for'} {_rounds(s)}:"
                yield from _body(s.body, indent + "  ", turns)
            case n.Fill():
                yield f"{indent}fill {s.pipeline}:"
                yield from _body(s.body, indent + "  ", turns)
            case n.Drain():
                yield f"{indent}{'turn' if s.pipeline in turns else 'drain'} {s.pipeline}:"
                yield from _body(s.body, indent + "  ", turns)
            case n.Pipelined():
                yield f"{indent}for {_rounds(s)}, {s.pipeline} filled ahead:"
                yield f"{indent}  fill {s.pipeline}:"
                yield from _body(s.fill, indent + "    ", turns)
                yield f"{indent}  drain {s.pipeline}:"
                yield from _body(s.drain, indent + "    ", turns)
            case n.Gather():
                yield f"{indent}gather {s.result} = {s.name} {s.value}; in the last CTA of the tile:"
                yield from _body(s.body, indent + "  ", turns)
            case n.Scope():
                yield f"{indent}with {', '.join(s.pipelines)}:"
                yield from _body(s.body, indent + "  ", turns)
            case n.InRole():
                yield f"{indent}role {s.role}:"
                yield from _body(s.body, indent + "  ", turns)


def _rounds(s: n.Loop | n.Pipelined) -> str:
    return f"{s.index} < {s.trips}" if s.first.same(0) else f"{s.trips} rounds {s.index} from {s.first}"


def _token(s: n.Copy | n.Multiply) -> str:
    return f"{s.token}: " if s.token else ""


def _operand(o: Tile | n.ScalarArgument | Expr | float) -> str:
    if isinstance(o, n.ScalarArgument):
        return o.name
    return f"{o:g}" if isinstance(o, (int, float)) else str(o)
