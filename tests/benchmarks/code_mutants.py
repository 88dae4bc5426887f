"""How many small wrong edits of our own code its tests notice: python -m tests.benchmarks.code_mutants --mutants 140

Edits are drawn by a seed, as many in every room, in turn of every kind. All quick tests of the room that execute the
line are tried until one fails; one that takes far more processor time than without the edit fails as well. Prints a
table by room and one by kind, then every survivor. With --keep FOLDER, what the tests execute is recorded once for as
long as the room does not change, and with --new a draw is of mutants that no draw with that folder has tried before.
Needs coverage (the extra `bench`).
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.mutants import executed, journal, trial
from tests.benchmarks.mutants.edits import KINDS, Edit, edits_of_file
from tests.benchmarks.mutants.equivalents import EQUIVALENTS
from tests.benchmarks.mutants.executed import Executed
from tests.benchmarks.mutants.order import Learned
from tests.benchmarks.mutants.rooms import OTHERS, ROOMS, ROOT, Room, module_name
from tests.benchmarks.mutants.trial import Outcome, Trial, Tries


@dataclass(frozen=True, slots=True)
class Mutant:
    room: Room
    edit: Edit
    trial: Trial

    def __str__(self) -> str:
        source = (ROOT / self.edit.path).read_text(encoding="utf-8")
        return f"{self.edit.path}:{self.edit.line}: {self.edit.before(source)} -> {self.edit.after(source)}"

    @property
    def key(self) -> journal.Key:
        return journal.key_of(self.edit, (ROOT / self.edit.path).read_text(encoding="utf-8"))

    @property
    def equivalent(self) -> bool:
        return any((e.path, e.before, e.after) == self.key for e in EQUIVALENTS)


def drawn(
    room: Room, known: Executed, count: int, seed: int, only: str = "", besides: Set[journal.Key] = frozenset()
) -> list[Mutant]:
    """Mutants of a room, in turn of every kind.

    only     of files whose path has it
    besides  these are left out
    """
    chance = random.Random(f"{seed} {room.name}")
    waiting: dict[str, list[Edit]] = {kind: [] for kind in KINDS}
    for path in room.paths():
        source = (ROOT / path).read_text(encoding="utf-8")
        for edit in edits_of_file(ROOT, path) if only in path else ():
            if not besides or journal.key_of(edit, source) not in besides:
                waiting[edit.kind].append(edit)
    for edits in waiting.values():
        chance.shuffle(edits)
    found: list[Mutant] = []
    while len(found) < count and any(waiting.values()):
        for kind in KINDS:
            if waiting[kind] and len(found) < count:
                found.append(_mutant(room, known, waiting[kind].pop()))
    return found


def _mutant(room: Room, known: Executed, edit: Edit) -> Mutant:
    tests = known.tests(edit.path, edit.line, edit.statement)
    edited = edit.of((ROOT / edit.path).read_text(encoding="utf-8"))
    on_import = not {edit.line, edit.statement}.isdisjoint(known.imported.get(edit.path, []))
    others = known.others(tests) if on_import else []
    return Mutant(room, edit, Trial(module_name(edit.path), edit.path, edited, tuple(tests), on_import, tuple(others)))


def tried(mutants: Sequence[Mutant], known: Mapping[str, Executed], jobs: int, seed: int) -> dict[Mutant, Outcome]:
    """What became of every mutant: "equivalent" where it is listed, "unexecuted" where no test comes by."""
    results: dict[Mutant, Outcome] = {}
    for mutant in mutants:
        if mutant.equivalent or not mutant.trial.tests:
            results[mutant] = Outcome("equivalent" if mutant.equivalent else "unexecuted", "", 0.0)
    for room in dict.fromkeys(m.room for m in mutants):
        of_room = [m for m in mutants if m.room == room and m not in results]

        def report(number: int, outcome: Outcome, of_room: list[Mutant] = of_room) -> None:
            mutant = of_room[number]
            results[mutant] = outcome
            text = f"{outcome.result} in {outcome.seconds:.1f} s: {mutant.edit.kind}: {mutant}"
            print(f"{len(results)}/{len(mutants)} {text} [{outcome.by}]", file=sys.stderr, flush=True)

        Tries(ROOT, room.tests, Learned(known[room.name]), jobs, seed).run([m.trial for m in of_room], report)
    return results


def table(results: dict[Mutant, Outcome], by: str) -> str:
    """Mutants and how they ended, by room or by kind; the share is of those that are not equivalent."""
    group = {m: m.room.name if by == "room" else m.edit.kind for m in results}
    columns = ("drawn", "equivalent", "killed", "time", "unexecuted", "survived", "killed")
    rows = [f"{by:20}" + "".join(f"{name:>12}" for name in columns)]
    for name in [*dict.fromkeys(group.values()), "all"]:
        ends = Counter(outcome.result for m, outcome in results.items() if name in ("all", group[m]))
        killed, total = ends["killed"] + ends["time"], sum(ends.values()) - ends["equivalent"]
        counts = (sum(ends.values()), *(ends[column] for column in columns[1:6]))
        rows.append(f"{name:20}" + "".join(f"{number:12}" for number in counts) + f"{killed / max(total, 1):12.1%}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=140, help="in all rooms together (140)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are tried at a time (1)")
    parser.add_argument("--rooms", default=",".join(room.name for room in ROOMS))
    parser.add_argument("--files", default="", help="only files whose path has this text")
    parser.add_argument("--keep", type=Path, help="folder for what the tests execute; without it, a temporary one")
    parser.add_argument("--new", action="store_true", help="leave out what draws with --keep have tried before")
    options = parser.parse_args(arguments)
    if options.new and options.keep is None:
        parser.error("--new leaves out what the folder of --keep says; name one")
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
            before = journal.read(folder / f"{room.name}-tried.json") if options.new else frozenset()
            mutants += drawn(room, known, share, options.seed, options.files, before)
        digests = [room.digest() for room in rooms]
        results = tried(mutants, everything, options.jobs, options.seed)
        if digests != [room.digest() for room in rooms]:
            raise RuntimeError("modules or tests changed while their mutants were tried: none of the results counts")
        for room in rooms:
            journal.note(folder / f"{room.name}-tried.json", (m.key for m in results if m.room == room))
    print(f"{table(results, 'room')}\n\n{table(results, 'kind')}\n")
    for mutant, outcome in results.items():
        if outcome.result in ("survived", "unexecuted"):
            print(f"{outcome.result}: {mutant}")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{spent.ru_utime + spent.ru_stime:,.0f} s of processor time", file=sys.stderr)


if __name__ == "__main__":
    main()
