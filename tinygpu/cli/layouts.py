"""`tinygpu show --layouts`: who holds what and what lies where, as shape:stride and as pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tinygpu.api.layouts import Layouts, drawn
from tinygpu.expressions import joined
from tinygpu.program.layouts import LINES, BufferLayout


def layouts_text(layouts: Layouts) -> str:
    """The layouts for people."""
    return "\n".join(_lines(layouts))


def _lines(layouts: Layouts) -> Iterator[str]:
    yield layouts.title
    yield ""
    yield "distributions: (threads, values) -> coordinates of the tile, first modes fastest"
    statement = None
    for d in layouts.distributions:
        if d.statement != statement:
            yield f"  {d.statement}"
            statement = d.statement
        yield f"    {d.tile}: {d.dtype}[{d.shape}]  {d.layout}"
    if not layouts.distributions:
        yield "  none: no statement holds a tile in registers"
    yield ""
    yield "buffers: (coordinates, stage) -> bytes of shared memory, or lanes and columns of tensor memory"
    for b in layouts.buffers:
        yield f"  {b.buffer.name}: {b.buffer.dtype}[{b.shape}] in {b.buffer.memory}  {_laid_out(b)}"
        yield f"    {_facts(b)}"
    if not layouts.buffers:
        yield "  none"
    if not layouts.numbers:
        yield ""
        yield "pictures are of candidates: give --shape and --device, and name=value for parameters"
        return
    for title, picture in layouts.pictures():
        yield ""
        yield title
        yield from (f"  {line}" for line in picture.split("\n"))


def _laid_out(b: BufferLayout) -> str:
    return "elements narrower than a column have no shape:stride here" if b.layout is None else str(b.layout)


def _facts(b: BufferLayout) -> str:
    """Stages, pitch and swizzle of a buffer."""
    facts = [f"{joined((b.buffer.stages, b.buffer.stage_bytes), ' x ')} B"]
    if b.buffer.swizzle_bytes is None:
        facts.append(f"rows {b.buffer.pitch_bytes} B apart")
    else:
        facts.append("rows cut to the width of the swizzle")
    return ", ".join([*facts, f"swizzle {b.swizzle}"])


def layouts_json(layouts: Layouts) -> dict[str, Any]:
    """The same as data; pictures are text, and only numbers have them."""
    return {
        "machine": layouts.machine,
        "candidate" if layouts.numbers else "structure": dict(layouts.point),
        "distributions": [
            {"statement": d.statement, "tile": d.tile, "dtype": d.dtype, "shape": d.shape, "layout": str(d.layout)}
            | ({"picture": drawn(d)} if layouts.numbers else {})
            for d in layouts.distributions
        ],
        "buffers": [_buffer_json(b) for b in layouts.buffers],
    }


def _buffer_json(b: BufferLayout) -> dict[str, Any]:
    picture = b.picture(LINES)
    return {
        "buffer": b.buffer.name,
        "pipeline": b.pipeline,
        "memory": str(b.buffer.memory),
        "dtype": str(b.buffer.dtype),
        "shape": b.shape,
        "stages": str(b.buffer.stages),
        "pitch_bytes": str(b.buffer.pitch_bytes),
        "swizzle_bytes": None if b.buffer.swizzle_bytes is None else str(b.buffer.swizzle_bytes),
        "swizzle": b.swizzle,
        "layout": None if b.layout is None else str(b.layout),
    } | ({} if picture is None else {"picture": str(picture)})
