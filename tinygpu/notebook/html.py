"""What a notebook shows of a result: short HTML with pictures as SVG, which needs no style sheet and no script.

Words of a user (names, sentences, PTX) are escaped here, so that whoever composes a page of these cannot forget it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_WIDTH, _ROW, _BAR = 620, 22, 300
_RIGHT, _WRONG = "#1a7f37", "#cf222e"


def verdict(right: bool, sentence: str) -> str:
    """A sentence that is good news or bad."""
    return f'<p><b style="color:{_RIGHT if right else _WRONG}">{escape(sentence)}</b></p>'


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def sentences(found: Iterable[str]) -> str:
    """One below the other."""
    return f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in found)}</ul>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a column whose name ends in > is right-aligned."""
    sides = ["right" if name.endswith(">") else "left" for name in columns]
    head = "".join(
        f'<th style="text-align:{side}">{escape(name.rstrip(">"))}</th>'
        for name, side in zip(columns, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{side}">{escape(cell)}</td>' for cell, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def code(text: str) -> str:
    return f'<pre style="overflow:auto;max-height:30em">{escape(text)}</pre>'


def folded(title: str, inner: str) -> str:
    """Shown where somebody asks for it."""
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def bars(title: str, shares: Mapping[str, float], said: Mapping[str, str]) -> str:
    """A bar for each share of a whole, 0 to 1, with what is said of it.

    >>> bars("time", {"DRAM": 1.0}, {"DRAM": "12 us"}).count("<rect")
    1
    """
    height = 28 + _ROW * len(shares)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><g font-family="system-ui,sans-serif" font-size="12" '
        'fill="currentColor">',
        f'<text x="4" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, share) in enumerate(shares.items()):
        y = 26 + _ROW * number
        width = round(_BAR * min(max(share, 0.0), 1.0), 1)
        out.append(f'<text x="196" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect x="204" y="{y + 3}" width="{width}" height="14" fill="#1f6feb"/>')
        out.append(f'<text x="{210 + width}" y="{y + 14}">{escape(said.get(name, ""))}</text>')
    return "".join([*out, "</g></svg>"])
