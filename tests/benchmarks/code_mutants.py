"""How many small wrong edits of our own code its tests notice: python -m tests.benchmarks.code_mutants --mutants 140

Edits are drawn by a seed, as many in every room, in turn of every kind, from lines that the room's quick tests execute.
The tests that execute the line run, fastest first, until one fails; a mutant that takes far more processor time than
they do is killed as well. Prints a table by room and one by kind, then every survivor. With --keep FOLDER, what the
tests execute is recorded once for as long as the room does not change. Needs coverage (the extra `bench`).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.mutants import executed, trial
from tests.benchmarks.mutants.edits import KINDS, Edit, edits_of_file
from tests.benchmarks.mutants.equivalents import EQUIVALENTS
from tests.benchmarks.mutants.executed import Executed
from tests.benchmarks.mutants.rooms import OTHERS, ROOMS, ROOT, Room, module_name

# A mutant may take so many times the processor time of its tests, and so many seconds for importing.
_SLOWER, _IMPORTING_S = 3.0, 15.0
# The wall clock ends only what sleeps: it allows for a busy machine.
_WALL = 20.0


@dataclass(frozen=True, slots=True)
class Mutant:
    room: Room
    edit: Edit
    tests: tuple[str, ...]
    seconds: float  # what the tests take without the edit

    def __str__(self) -> str:
        source = (ROOT / self.edit.path).read_text(encoding="utf-8")
        return f"{self.edit.path}:{self.edit.line}: {self.edit.before(source)} -> {self.edit.after(source)}"

    @property
    def equivalent(self) -> bool:
        source = (ROOT / self.edit.path).read_text(encoding="utf-8")
        key = (self.edit.path, self.edit.before(source), self.edit.after(source))
        return any((e.path, e.before, e.after) == key for e in EQUIVALENTS)


def drawn(room: Room, known: Executed, count: int, seed: int, only: str = "") -> list[Mutant]:
    """Mutants of a room, in turn of every kind; listed equivalents are left out. only: of files whose path has it."""
    chance = random.Random(f"{seed} {room.name}")
    waiting: dict[str, list[Edit]] = {kind: [] for kind in KINDS}
    for path in room.paths():
        for edit in edits_of_file(ROOT, path) if only in path else ():
            waiting[edit.kind].append(edit)
    for edits in waiting.values():
        chance.shuffle(edits)
    found: list[Mutant] = []
    while len(found) < count and any(waiting.values()):
        for kind in KINDS:
            mutant = next(_executed(room, known, waiting[kind]), None)
            if mutant is not None and len(found) < count:
                found.append(mutant)
    return found


def _executed(room: Room, known: Executed, edits: list[Edit]) -> Iterator[Mutant]:
    """The mutants of a list that tests execute; takes them from the list."""
    while edits:
        edit = edits.pop()
        tests = known.tests(edit.path, edit.line, edit.statement)
        mutant = Mutant(room, edit, tuple(tests), sum(known.seconds[test] for test in tests))
        if tests and not mutant.equivalent:
            yield mutant


def tried(mutants: Sequence[Mutant], jobs: int, seed: int) -> dict[Mutant, str]:
    """What became of every mutant."""
    waiting, running, results = list(reversed(mutants)), dict[int, tuple[Mutant, float, float]](), dict[Mutant, str]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            source = (ROOT / mutant.edit.path).read_text(encoding="utf-8")
            limit = _SLOWER * mutant.seconds + _IMPORTING_S
            module, edited = module_name(mutant.edit.path), mutant.edit.of(source)
            pid = trial.start(ROOT, module, mutant.edit.path, edited, mutant.tests, limit, seed)
            running[pid] = (mutant, time.monotonic(), _WALL * limit)
        time.sleep(0.05)
        for pid, (mutant, begun, wall) in list(running.items()):
            result = trial.ended(pid, begun, wall)
            if result is not None:
                del running[pid]
                results[mutant] = result
                line = f"{len(results)}/{len(mutants)} {result}: {mutant.room.name}, {mutant.edit.kind}: {mutant}"
                print(line, file=sys.stderr, flush=True)
    return results


def check_without_edits(rooms: Sequence[Room], known: Mapping[str, Executed], seed: int) -> None:
    """Raises RuntimeError where tests fail without any edit: what kills mutants then is not their edit."""
    for room in rooms:
        seconds = known[room.name].seconds
        (path, source) = next((p, (ROOT / p).read_text(encoding="utf-8")) for p in room.paths())
        tests = sorted(seconds, key=lambda test: (seconds[test], test))[:5]
        pid = trial.start(ROOT, module_name(path), path, source, tests, _SLOWER * _IMPORTING_S, seed)
        begun = time.monotonic()
        while (result := trial.ended(pid, begun, _WALL * _IMPORTING_S)) is None:
            time.sleep(0.05)
        if result != "survived":
            raise RuntimeError(f"the tests of {room.tests} do not pass without an edit ({result})")


def table(results: dict[Mutant, str], by: str) -> str:
    """Mutants and how they ended, by room or by kind."""
    group = {m: m.room.name if by == "room" else m.edit.kind for m in results}
    rows = [f"{by:20}{'mutants':>10}{'killed':>10}{'time':>10}{'survived':>10}{'killed':>10}"]
    for name in [*dict.fromkeys(group.values()), "all"]:
        ends = Counter(result for m, result in results.items() if name in ("all", group[m]))
        killed, total = ends["killed"] + ends["time"], sum(ends.values())
        numbers = f"{total:10}{ends['killed']:10}{ends['time']:10}{total - killed:10}"
        rows.append(f"{name:20}{numbers}{killed / total:9.1%}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=140, help="in all rooms together (140)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are tried at a time (1)")
    parser.add_argument("--rooms", default=",".join(room.name for room in ROOMS))
    parser.add_argument("--files", default="", help="only files whose path has this text")
    parser.add_argument("--keep", type=Path, help="folder for what the tests execute; without it, a temporary one")
    options = parser.parse_args(arguments)
    rooms = [room for room in (*ROOMS, *OTHERS) if room.name in options.rooms.split(",")]
    if missing := sorted(set(options.rooms.split(",")) - {room.name for room in rooms}):
        known_rooms = ", ".join(room.name for room in (*ROOMS, *OTHERS))
        parser.error(f"no room is called {missing[0]!r}; there are {known_rooms}")
    trial.import_what_is_needed()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        mutants: list[Mutant] = []
        everything: dict[str, Executed] = {}
        for number, room in enumerate(rooms):
            file = folder / f"{room.name}-{room.digest()}.json"
            print(f"{room.name}: what its tests execute ...", file=sys.stderr, flush=True)
            known = executed.read(file) if file.exists() else executed.record(ROOT, room.modules, room.tests, file)
            everything[room.name] = known
            share = (options.mutants + number) // len(rooms)
            mutants += drawn(room, known, share, options.seed, options.files)
        digests = [room.digest() for room in rooms]
        check_without_edits(rooms, everything, options.seed)
        results = tried(mutants, options.jobs, options.seed)
        check_without_edits(rooms, everything, options.seed)
        if digests != [room.digest() for room in rooms]:
            raise RuntimeError("modules or tests changed while their mutants were tried: none of the results counts")
    print(f"{table(results, 'room')}\n\n{table(results, 'kind')}\n")
    for mutant, result in results.items():
        if result not in ("killed", "time"):
            print(f"{result}: {mutant}")


if __name__ == "__main__":
    main()
