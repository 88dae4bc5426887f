"""Reductions: the values of each thread first, then the lanes that meet, then the warps that do."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from tinygpu.language.meeting import LANES
from tinygpu.program import nodes as n
from tinygpu.program.exchanged import Exchanged, exchanged, lane_masks
from tinygpu.ptx.lowering import across_ctas, across_warps
from tinygpu.ptx.lowering.broadcast import broadcast
from tinygpu.ptx.lowering.compute import partition_of
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number
from tinygpu.ptx.lowering.merging import Value, chosen, keep, merged, merged_all, unworded, values_of, words
from tinygpu.ptx.lowering.texts import written


def write(context: Context, s: n.Reduce) -> None:
    """Writes a reduction; afterwards all that met hold the same bits."""
    emit = context.emit
    before, after = partition_of(s.sources[0]), partition_of(s.results[0])
    emit.comment(s.headline(frozenset()))
    values = values_of(context, s.sources)
    groups = broadcast(after, before, s.results[0].name)
    results = []
    for target in range(after.values.size):
        results.append(merged_all(context, s.merge, [values[int(v)] for v in np.flatnonzero(groups == target)]))
    results = _lanes(context, s, results)
    if (by := exchanged(s)) is not None:
        results = _warps(context, s, by, results)
    elif int(s.meeting.warps) > 1:
        _apart(s, "warps")
    keep(context, s.results, across_ctas.combined(context, s, results))


def _lanes(context: Context, s: n.Reduce, results: list[Value]) -> list[Value]:
    """The lanes of each warp that meet, in pairs by shuffles, or all at once."""
    masks = lane_masks(s.meeting)
    if not masks:
        return results
    plain = s.merge.plain
    if s.by is None:
        _apart(s, "threads")
    if s.by.at_once is not None and plain is not None and len(masks) == LANES.bit_length() - 1:
        text = written(s.by.at_once.form, plain)
        return [[_at_once(context, text, value)] for (value,) in results]
    for mask in masks:
        results = [_paired(context, s, value, mask) for value in results]
    return results


def _at_once(context: Context, text: str, value: str) -> str:
    made = context.emit.new("r")
    context.emit.line(text.format(d=made, a=value))
    return str(made)


def _paired(context: Context, s: n.Reduce, value: Value, mask: int) -> Value:
    """What the lane has together with the one whose number differs in a bit."""
    if s.by is None:
        _apart(s, "threads")
    got = []
    for word in words(context, s.merge, value):
        other = context.emit.new("r")
        context.emit.line(written(s.by.shuffle.statement, str(other), word, mask))
        got.append(str(other))
    theirs = unworded(context, s.merge, got)
    if not s.merge.ordered:
        return merged(context, s.merge, value, theirs)
    first = _first(context, mask)  # both lanes put the same one first, and have the same bits afterwards
    left, right = chosen(context, s.merge, value, theirs, first), chosen(context, s.merge, theirs, value, first)
    return merged(context, s.merge, left, right)


def _first(context: Context, mask: int) -> Number:
    """Whether the lane is the first of a pair."""
    emit = context.emit
    return emit.less(emit.computed("r", "and.b32 {d}, {0}, {1};", context.lane(), mask), 1)


def _warps(context: Context, s: n.Reduce, by: Exchanged, results: list[Value]) -> list[Value]:
    """The warps that meet: each leaves its results, and each thread combines its share in the order of the warps."""
    left = across_warps.leave(context, by, [words(context, s.merge, value) for value in results])
    out = []
    for number in range(len(results)):
        taken = [unworded(context, s.merge, got) for got in across_warps.take(context, left, number)]
        out.append(merged_all(context, s.merge, taken))
    for mask in by.masks[: by.lanes.bit_length() - 1]:
        out = [_paired(context, s, value, mask) for value in out]
    return out


def _apart(s: n.Combining, who: str) -> NoReturn:
    it = s.sources[0].name
    raise LoweringError(f"%{it} is held by several {who} along axis {s.axis}, and nothing is said that lets them meet")
