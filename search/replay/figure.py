"""Which of the measured figures a search makes small, and how one of which more is better becomes such a figure.

Kernel Tuner writes the objective of a tuning into its files: none in early versions, a name later, a list of names in
version 1.5. It may be a rate, such as GFLOP/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

TIME = "time"
# So much of something per second, watt or joule: "GFLOP/s", "GB/s", "GFLOPS/W", "TFLOP/J".
_RATE = re.compile(r"[^\s()]+/[sWJ]")
# Other names of figures of which Kernel Tuner takes more to be better.
_GAINS = ("fitness", "score")
# What early versions of Kernel Tuner wrote in place of the time of a configuration that failed.
_FAILED = 1e20


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure, by its name in the file."""

    name: str

    @property
    def is_rate(self) -> bool:
        return _RATE.fullmatch(self.name) is not None

    @property
    def less_is_better(self) -> bool:
        return not self.is_rate and self.name not in _GAINS

    @property
    def objective(self) -> str:
        """What the values are, so that less is better."""
        return f"1 / ({self.name})" if self.is_rate else self.name if self.less_is_better else f"-{self.name}"

    def value(self, measured: Any) -> float | None:
        """The value of what was measured; None where that is no figure.

        >>> Figure("time").value(2.5), Figure("GFLOP/s").value(4.0), Figure("score").value(0.5)
        (2.5, 0.25, -0.5)
        >>> Figure("time").value("RuntimeFailedConfig"), Figure("time").value(1e20), Figure("GB/s").value(0.0)
        (None, None, None)
        """
        number = finite(measured)
        if number is None or abs(number) >= _FAILED or (self.is_rate and number <= 0):
            return None
        return finite(1 / number) if self.is_rate else number if self.less_is_better else -number


def chosen_figure(asked: str | None, named: Any, measured: Iterable[str]) -> Figure:
    """The figure that is asked for, else the one that a file names, else the time.

    named     a name, a list of names, or nothing: the objectives of the tuning that wrote the file
    measured  names of what was measured; of a tuning for a rate, the time is taken where it is there

    >>> chosen_figure(None, ["time"], ["time"]).name, chosen_figure(None, "GFLOP/s", ["GFLOP/s", "time"]).name
    ('time', 'time')
    >>> chosen_figure(None, "GFLOP/s", ["GFLOP/s"]).objective, chosen_figure("energy", "time", ["time"]).name
    ('1 / (GFLOP/s)', 'energy')
    """
    if asked:
        return Figure(asked)
    figures = [Figure(n) for n in ([named] if isinstance(named, str) else named or []) if isinstance(n, str) and n]
    for figure in figures:
        if figure.less_is_better:
            return figure
    return figures[0] if figures and TIME not in measured else Figure(TIME)


def finite(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
