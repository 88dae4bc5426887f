"""How many lost or weakened synchronisations the emulator notices: python -m tests.benchmarks.mutation_score [PATTERN]

Prints a table of every change that is made to the subjects (of the pattern), by kind; then what was missed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "ptx" / "emulator"))

from mutations.every_subject import every_subject
from mutations.score import Verdict, table, verdicts


def main(pattern: str) -> None:
    results: list[Verdict] = []
    for subject in every_subject():
        if re.search(pattern, subject.name):
            print(f"{subject.name} ...", file=sys.stderr, flush=True)
            results += verdicts(subject)
    print(table(results))
    for verdict in results:
        if verdict.missed:
            print(f"missed: {verdict}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
