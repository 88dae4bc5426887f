"""Solved layouts as pictures: where the first rows of a buffer lie in the banks of shared memory."""

from __future__ import annotations

from html import escape

from tinygpu.layouts.draw import BANKS
from tinygpu.report.chart import box, drawn, text
from tinygpu.report.run import Placed
from tinygpu.solver.smem_layout import SmemLayout

_LINE_BYTES = BANKS * 4
# Lines of 128 bytes that are shown: more than any swizzle's period.
_LINES = 8
_PROOFS = {
    "ideal": "proved: no access meets a conflict",
    "pigeonhole": "proved: no layout has fewer",
    "refuted": "proved: the family has nothing better",
    "none": "not proved to be the best",
}


def layout(placed: Placed) -> str:
    """One buffer: its picture, what each access takes, and how sure that is."""
    found = SmemLayout(placed.rows, placed.row_bytes, placed.pitch_bytes, tuple((b, m) for b, m in placed.xor))
    chunk = max(4, min(16, found.vector_bytes))
    # address of a chunk -> (row, number of the chunk in its row)
    where: dict[int, tuple[int, int]] = {}
    for row in range(min(found.rows, _LINES * _LINE_BYTES // found.pitch_bytes + 1)):
        flips = sum(mask for bit, mask in found.xor if row >> bit & 1)
        for column in range(0, found.row_bytes, chunk):
            where[row * found.pitch_bytes + (column ^ flips)] = (row, column // chunk)
    lines = min(_LINES, -(-found.size_bytes // _LINE_BYTES))

    def draw(width: int) -> tuple[int, list[str]]:
        left, top = 54, 26
        per_line = _LINE_BYTES // chunk
        cell = min((width - left - 4) / per_line, 60)
        tall = 26
        out = [text(left, 14, "bank 0", "tick"), text(left + cell * per_line, 14, "bank 31", "tick", "end")]
        for at in range(lines):
            y = top + at * tall
            out.append(text(left - 8, y + 17, f"{at * _LINE_BYTES} B", "tick", "end"))
            for place in range(per_line):
                held = where.get(at * _LINE_BYTES + place * chunk)
                x = round(left + place * cell, 1)
                if held is None:
                    out.append(box(x, y, round(cell - 2, 1), tall - 2, "cell none", "padding", 3))
                    continue
                row, number = held
                said = f"row {row}, bytes {number * chunk} to {number * chunk + chunk - 1}"
                out.append(box(x, y, round(cell - 2, 1), tall - 2, f"cell h{number % 8}", said, 3))
                if cell >= 34:
                    out.append(text(round(x + cell / 2 - 1, 1), y + 16, f"{row}:{number}", "inside", "middle"))
        return top + lines * tall + 4, out

    rows = "".join(
        f"<tr><td>{escape(a.name)}</td><td>{a.wavefronts / a.instances:g}</td><td>{a.ideal / a.instances:g}</td></tr>"
        for a in placed.accesses
    )
    sure = "proof" if placed.proof != "none" else "open"
    return (
        f'<article class="layout"><h3>{escape(placed.buffer)} <small>{escape(placed.text)}</small></h3>'
        + drawn(f"the first lines of {placed.buffer} in shared memory", draw)
        + f'<p><span class="badge {sure}">{_PROOFS.get(placed.proof, "")}</span> {escape(placed.sentence)}.</p>'
        '<div class="scroll"><table><thead><tr><th>access</th><th>wavefronts each</th><th>without conflicts</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div></article>"
    )
