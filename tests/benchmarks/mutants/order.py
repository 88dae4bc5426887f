"""In which order the tests of a line are tried: those first that are likely to notice an edit for little time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.benchmarks.mutants.executed import Executed

if TYPE_CHECKING:
    from tests.benchmarks.mutants.trial import Trial


class Learned:
    """What tests cost, how much of a file they execute, and what they have noticed so far.

    seconds  test -> processor time
    """

    def __init__(self, known: Executed) -> None:
        self.seconds = known.seconds
        self._of_file: dict[str, Counter[str]] = {}
        for path, lines in known.lines.items():
            self._of_file[path] = Counter(test for tests in lines.values() for test in tests)
        self._in_all: Counter[str] = sum(self._of_file.values(), Counter())
        self._noticed: dict[str, Counter[str]] = {}

    def ordered(self, trial: Trial, tests: Sequence[str]) -> list[str]:
        """Cheap ones first; one that executes little but this file, or has noticed edits of it, goes before."""
        lines, noticed = self._of_file.get(trial.path, Counter()), self._noticed.get(trial.path, Counter())

        def worth(test: str) -> float:
            share = (lines[test] + 1) / (self._in_all[test] + 1)
            return (0.02 + self.seconds.get(test, 0.0)) / (share * (1 + 3 * noticed[test]))

        return sorted(tests, key=lambda test: (worth(test), test))

    def note(self, trial: Trial, test: str) -> None:
        if test:
            self._noticed.setdefault(trial.path, Counter())[test] += 1
