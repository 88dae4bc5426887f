"""How `tinygpu run` reads numbers and prints what a program made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from tinygpu.api.run import Ran
    from tinygpu.ptx.verification.comparison import Difference


def numbers(words: Iterable[str]) -> dict[str, float]:
    """a=2.5 words as numbers."""
    out: dict[str, float] = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not name or not equals or (math.isnan(value) and text.lower() != "nan"):
            raise typer.BadParameter(f"--scalar takes name=number, not {word!r}")
        if name in out:
            raise typer.BadParameter(f"--scalar gives {name} twice")
        out[name] = value
    return out


def ran_json(ran: Ran, written: Sequence[Path]) -> dict[str, Any]:
    """Everything as data; JSON has no NaN and no infinities, so these are texts."""

    def plain(value: float) -> float | str:
        return value if math.isfinite(value) else str(value)

    return {
        "passed": ran.passed,
        "point": ran.made.point,
        "scalars": {name: plain(float(value)) for name, value in ran.trial.scalars.items()},
        "outputs": [
            {
                "name": name, "dtype": ran.made.space.problem.operand(name).dtype.name,
                "shape": list(ran.results[name].shape), "wrong": d.wrong, "elements": d.elements,
                "error": plain(d.error), "bound": plain(d.bound),
            }
            for name, d in ran.differences.items()
        ],
        "saved": [str(path) for path in written],
    }  # fmt: skip


def ran_report(ran: Ran, written: Sequence[Path], inputs: str) -> None:
    """The candidate, and each result beside the reference."""
    print("candidate " + " ".join(f"{k}={v}" for k, v in ran.made.point.items()))
    numbers = "".join(f", {name}={value}" for name, value in ran.trial.scalars.items())
    print(f"its program, run in NumPy by what its instructions mean, on {inputs}{numbers}:")
    for name, d in ran.differences.items():
        kind = ran.made.space.problem.operand(name).dtype
        print(f"  {name}: {kind}[{', '.join(map(str, ran.results[name].shape))}] {verdict(d)}")
    for path in written:
        print(f"wrote {path}")


def verdict(d: Difference) -> str:
    """One result beside the reference, in words."""
    if d.wrong:
        return f"is WRONG in {d.wrong:,} of {d.elements:,} elements; {d.worst}"
    free = f"; {d.unjudged:,} of {d.elements:,} elements may be anything" if d.unjudged else ""
    if d.bound == 0:
        return f"is what the reference makes, bit for bit{free}"
    return f"is what the reference makes, within rounding: error {d.error:.3g}, bound {d.bound:.3g}{free}"
