"""CPU seconds of the steps of `tinygpu tune`, in this process: a child of tests.benchmarks.time_to_kernel.

    python timed_tuning.py SECONDS.json tune saxpy.py:Saxpy --shape n=1000 --device a100

Is the command itself, with a clock around the functions that its steps are: what one calls of another counts for the
other alone, and processes that a step ends count for it.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

# Step -> functions that are it, by module and the name that the module calls them by.
STEPS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "space": (("tinygpu.api.tune", "space_of"),),
    "predicting": (("tinygpu.api.tune", "minimize"), ("tinygpu.api.tune", "roofline_seconds")),
    "ranking": (("tinygpu.api.finalist", "ranked"), ("tinygpu.search.refine", "refined")),
    "layouts": (("tinygpu.search.refine", "solve_buffers"),),
    "lowering": (("tinygpu.api.finalist", "lower"),),
    "assembling": (("tinygpu.api.finalist", "run_apart"),),
    "verifying": (("tinygpu.api.tune", "verified_apart"),),
}
REST = "rest"


def cpu_seconds() -> float:
    """Of this process, and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@dataclass(slots=True)
class Clock:
    """What is under way, the innermost last, and what each has taken so far."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    under_way: list[str] = field(default_factory=lambda: [REST])
    since: float = 0.0

    def turn(self) -> None:
        """What was under way until now is charged."""
        now = cpu_seconds()
        self.seconds[self.under_way[-1]] += now - self.since
        self.since = now

    def around(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def timed(*given: Any, **named: Any) -> Any:
            self.turn()
            self.under_way.append(step)
            try:
                return call(*given, **named)
            finally:
                self.turn()
                self.under_way.pop()

        return timed


def main() -> None:
    place, sys.argv = Path(sys.argv[1]), ["tinygpu", *sys.argv[2:]]
    from tinygpu.cli import main as command  # before NumPy, as the command does

    clock = Clock()
    for step, functions in STEPS.items():
        for module, name in functions:
            owner = importlib.import_module(module)
            setattr(owner, name, clock.around(step, getattr(owner, name)))
    try:
        command()
    finally:
        clock.turn()
        place.write_text(json.dumps(clock.seconds))


if __name__ == "__main__":
    main()
