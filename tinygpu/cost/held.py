"""Which share of the slots is in use until the next one is, and is not filled again before."""

from __future__ import annotations

from tinygpu.expressions import Expr, expr, where
from tinygpu.language.memories import GMEM
from tinygpu.program import nodes as n
from tinygpu.program.groups import groups
from tinygpu.program.program import Program
from tinygpu.program.tree import walk


def held_bytes(program: Program) -> tuple[Expr, Expr]:
    """(bytes of all slots into which tensors are copied, those of slots that products read while the next begin).

    Of a pipeline whose products go on into the next round (`tinygpu.program.groups`) that is one slot; not where there
    is but one, whose products are waited for in their own round.
    """
    whole = held = expr(0)
    late = {s.pipeline for s in groups(program.body).carried if isinstance(s, n.Consume)}
    copies = [s for s in walk(program.body) if isinstance(s, n.Copy) and s.source.memory is GMEM]
    filled = {s.target.name.partition(".")[0] for s in copies}
    for pipeline in (p for p in program.pipelines if p.name in filled):
        for buffer in pipeline.buffers:
            whole = whole + buffer.bytes
            if pipeline.name in late:
                held = held + where(pipeline.stages == 1, 0, buffer.bytes // pipeline.stages)
    return whole, held
