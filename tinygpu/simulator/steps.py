"""Several launches as a drawing: one behind the other, each with its launch and its run."""

from __future__ import annotations

from collections.abc import Mapping

from tinygpu.simulator.drawing import HUES, Canvas, round_step
from tinygpu.simulator.simulate import Simulation

LEFT, WIDTH, ROW = 190, 1180, 44


def steps_svg(steps: Mapping[str, Simulation], title: str) -> str:
    """Launches over time as one self-contained SVG.

    Raises ValueError where a launch is refused.
    """
    for name, found in steps.items():
        if not found.seconds < float("inf"):
            raise ValueError(f"[timeline] there is nothing to draw of step {name}: {found.sentence()}")
    whole = sum(found.seconds for found in steps.values())
    device = next(iter(steps.values())).device
    canvas = Canvas(WIDTH, 0, f"timeline of {title}")
    y = canvas.paragraph(12, 22, title, "title")
    y = canvas.paragraph(12, y, f"{device}: {whole * 1e6:,.2f} us, simulated, not measured", "note") + 5
    scale, bottom = (WIDTH - LEFT - 20) / whole, y + ROW * len(steps) + 6
    canvas.height = int(bottom + 24)
    step = round_step(whole * 1e6, 10)
    for number in range(int(whole * 1e6 / step) + 1):
        x = LEFT + number * step * 1e-6 * scale
        canvas.line(x, y, x, bottom, "grid")
        canvas.text(x, bottom + 16, f"{number * step:g} us", "middle")
    begun = 0.0
    for number, (name, found) in enumerate(steps.items()):
        canvas.text(LEFT - 8, y + 14, name, "left")
        runs = found.seconds - found.launch_s
        says = f"{name}: {runs * 1e6:,.2f} us behind {found.launch_s * 1e6:,.2f} us of launch; {found.sentence()}"
        canvas.box(LEFT + begun * scale, y + 6, found.launch_s * scale, 8, "wait", f"launch of {name}")
        canvas.box(LEFT + (begun + found.launch_s) * scale, y + 2, runs * scale, 16, f"h{number % len(HUES)}", says)
        canvas.text(LEFT, y + 34, says[:120], "note")
        begun += found.seconds
        y += ROW
    return str(canvas)


__all__ = ["steps_svg"]
