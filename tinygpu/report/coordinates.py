"""Parallel coordinates: every candidate a line through its parameters, to its time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from tinygpu.report.chart import Scale, drawn, line, padded, seconds_text, text, tip
from tinygpu.report.run import Sample

# Shares of the candidates, by rank, that a colour stands for: the best ones last, on top.
_CLASSES = ((0.05, "q0"), (0.2, "q1"), (0.5, "q2"), (1.0, "q3"))
_ABSENT = "–"


def coordinates(sample: Sample) -> str:
    """The sample's candidates; parameters that never change are named below."""
    names = varying(sample)
    fixed = {name: _word(values[0]) for name, values in sample.columns.items() if name not in names}
    stops = {name: _ordered(sample.columns[name]) for name in names}
    order = np.argsort(np.array(sample.seconds), kind="stable")
    count = len(order)
    low, high = padded(sample.seconds, 0.02)
    rank = {int(row): place for place, row in enumerate(order)}
    places = [[stops[name].index(_word(sample.columns[name][row])) for name in names] for row in range(count)]

    def draw(width: int) -> tuple[int, list[str]]:
        wide = width > 500
        across = len(names) + 1
        height = 380 if wide else 56 * across + 20
        lanes = Scale(0, across - 1, 30, width - 64) if wide else Scale(0, across - 1, 34, height - 40)
        span = (height - 34, 46) if wide else (14, width - 14)
        seconds = Scale(low, high, *span, log=True)

        def along(axis: int, place: int) -> float:
            steps = len(stops[names[axis]]) - 1
            return Scale(0, steps, *span)(place)

        def at(axis: int, value: float) -> str:
            return f"{lanes(axis):g},{value:g}" if wide else f"{value:g},{lanes(axis):g}"

        out = []
        for row in order[::-1].tolist():
            kind = next(k for share, k in _CLASSES if rank[row] < max(1, share * count))
            track = [at(axis, along(axis, place)) for axis, place in enumerate(places[row])]
            track.append(at(len(names), seconds(sample.seconds[row])))
            said = f"#{rank[row] + 1}: {seconds_text(sample.seconds[row])} · " + " ".join(
                f"{name}={_word(sample.columns[name][row])}" for name in names
            )
            data = ",".join(map(str, places[row]))
            out.append(f'<path d="M{"L".join(track)}" class="ray {kind}" data-places="{data}"{tip(said)}/>')
        for axis, name in enumerate(names):
            at_axis = lanes(axis)
            if wide:
                out.append(line(at_axis, span[0], at_axis, span[1], "axis"))
                out.append(text(lanes(axis), 16 if axis % 2 == 0 else 30, name, "name", "middle"))
            else:
                out.append(line(span[0], at_axis, span[1], at_axis, "axis"))
                out.append(text(span[0], lanes(axis) - 10, name, "name"))
            for place, word in enumerate(stops[name]):
                x, y = (lanes(axis), along(axis, place)) if wide else (along(axis, place), lanes(axis))
                anchor = "" if wide else _anchor(place, stops[name])
                shown = text(x + 6 * wide, y + (4 if wide else 16), word, "stop", anchor)
                out.append(
                    f'<g class="pick" role="button" tabindex="0" data-axis="{axis}" data-place="{place}" '
                    f'aria-label="{escape(name)} = {escape(word)}"><circle cx="{x:g}" cy="{y:g}" r="4"/>{shown}</g>'
                )
        last = lanes(len(names))
        if wide:
            out += [line(last, span[0], last, span[1], "axis"), text(last, 16, "time", "name", "middle")]
            out += [text(last + 8, seconds(t) + 4, seconds_text(t), "stop") for t in seconds.ticks(7)]
        else:
            out += [line(span[0], last, span[1], last, "axis"), text(span[0], last - 10, "time", "name")]
            out += [text(seconds(t), last + 16, seconds_text(t), "stop", "middle") for t in seconds.ticks(4)]
        return height, out

    kept = ", ".join(f"{name} = {value}" for name, value in fixed.items())
    always = f" Always the same: {escape(kept)}." if kept else ""
    return (
        '<div class="rays">' + drawn("parameters and times of candidates", draw) + "</div>"
        f'<p class="note">{count:,} of the candidates that were tried: the best, and others drawn uniformly. Greener '
        f"is faster. Choose values to see only the candidates that have them.{always}</p>"
    )


def varying(sample: Sample) -> list[str]:
    """The parameters of which the sample has more than one value."""
    return [name for name, values in sample.columns.items() if len({_word(v) for v in values}) > 1]


def _anchor(place: int, stops: Sequence[str]) -> str:
    return "" if place == 0 else "end" if place == len(stops) - 1 else "middle"


def _ordered(values: Sequence[object]) -> list[str]:
    """Different values: numbers by size, then words, then what some candidates do not have."""
    different = {_word(value): value for value in values}
    return sorted(
        different, key=lambda w: (different[w] is None, isinstance(different[w], str), _size(different[w]), w)
    )


def _size(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _word(value: object) -> str:
    return _ABSENT if value is None else str(value)
