"""Statements as text, one line each."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.expressions import Expr
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n


def listing(body: tuple[n.Statement, ...], indent: str, turns: frozenset[str]) -> Iterator[str]:
    """One line per statement, what stands inside one indented further; `turns` are the pipelines without buffers."""
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
                yield from listing(s.body, indent + "  ", turns)
            case n.Produce():
                yield f"{indent}produce {s.pipeline}:"
                yield from listing(s.body, indent + "  ", turns)
            case n.Consume():
                yield f"{indent}{'turn' if s.pipeline in turns else 'consume'} {s.pipeline}:"
                yield from listing(s.body, indent + "  ", turns)
            case n.Pipelined():
                yield f"{indent}for {_rounds(s)}, {s.pipeline} produced ahead:"
                yield f"{indent}  produce {s.pipeline}:"
                yield from listing(s.produce, indent + "    ", turns)
                yield f"{indent}  consume {s.pipeline}:"
                yield from listing(s.consume, indent + "    ", turns)
            case n.FixUp():
                yield f"{indent}fix up {s.result} = {s.name} {s.value}; in the last CTA of the tile:"
                yield from listing(s.body, indent + "  ", turns)
            case n.Scope():
                yield f"{indent}with {', '.join(s.pipelines)}:"
                yield from listing(s.body, indent + "  ", turns)
            case n.InRole():
                yield f"{indent}role {s.role}:"
                yield from listing(s.body, indent + "  ", turns)


def _rounds(s: n.Loop | n.Pipelined) -> str:
    return f"{s.index} < {s.trips}" if s.first.same(0) else f"{s.trips} rounds {s.index} from {s.first}"


def _token(s: n.Copy | n.Multiply) -> str:
    return f"{s.token}: " if s.token else ""


def _operand(o: Tile | n.ScalarArgument | Expr | float) -> str:
    if isinstance(o, n.ScalarArgument):
        return o.name
    return f"{o:g}" if isinstance(o, (int, float)) else str(o)
