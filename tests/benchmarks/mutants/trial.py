"""Mutants under their tests, each in a forked process: the checkout stays as it is.

One process imports the package and collects a room's tests once; for every mutant it forks, and the child exchanges
the code of the edited function and runs the tests one by one until one fails. What an edit changes on import (constants
of a module, defaults, class bodies) is tried in a process that imports everything with the edit. Examples that fail are
not shrunk, and none is kept. A test that also fails without an edit kills nothing.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.benchmarks.mutants import live
from tests.benchmarks.mutants.child import Child
from tests.benchmarks.mutants.order import Learned

_NEEDED = ("numpy", "ml_dtypes", "sympy", "z3", "hypothesis", "rich", "typer")
_MEMORY = 8 << 30
# A test with an edit may take so many times its processor time without it, and so many seconds more.
_SLOWER, _MORE_S = 5.0, 4
# The wall clock ends only what sleeps: it allows for a busy machine.
_WALL = 15.0
_FAILED = 3


@dataclass(frozen=True, slots=True)
class Trial:
    """One edited module and what it is tried on.

    module     the name that it is imported by
    path       its file, from the root
    edited     its text with the edit
    tests      the tests that execute the edit
    on_import  whether the edited lines run when the module is imported
    others     tests that are tried after them, where the edited lines run on import: what is made then goes anywhere
    """

    module: str
    path: str
    edited: str
    tests: tuple[str, ...]
    on_import: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial.

    result   "killed", "time" (a test takes too long), "survived", or "import" (it has to be imported with the edit)
    by       the test that killed it or took too long
    seconds  of processor time
    """

    result: str
    by: str
    seconds: float


Report = Callable[[int, Outcome], None]


def import_what_is_needed() -> None:
    """What every child would import again; not the package itself."""
    for name in _NEEDED:
        importlib.import_module(name)
    if any(name.partition(".")[0] == "tinygpu" for name in sys.modules):
        raise RuntimeError("tinygpu is imported already: its modules could not be edited")


@dataclass
class Tries:
    """Tries edits of a room, several at a time.

    root     of the checkout
    folder   of the tests, from the root
    learned  in which order tests are tried
    """

    root: Path
    folder: str
    learned: Learned
    jobs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        self.sound: dict[str, bool] = {}
        self.items: dict[str, pytest.Item] = {}
        self.alive: dict[live.Place, list[FunctionType]] = {}

    def run(self, trials: Sequence[Trial], report: Report) -> None:
        """Reports every trial, with its place in the list, as it ends."""
        room, again = Child(), list[int]()
        if room.forked():
            _leave(lambda: self._session([self.folder], _Room(self, trials, room)))
        while True:
            ended = room.ended()
            for line in room.heard():
                number, *rest = json.loads(line)
                outcome = Outcome(*rest)
                self.learned.note(trials[number], outcome.by)
                if outcome.result == "import":
                    again.append(number)
                else:
                    report(number, outcome)
            if ended:
                break
            time.sleep(0.05)
        room.close()
        if room.status:
            raise RuntimeError(f"the process that tries mutants ended with status {room.status}")
        left = list[int]()

        def imported(number: int, outcome: Outcome) -> None:
            if outcome.result == "survived" and trials[number].others:
                left.append(number)
            else:
                report(number, outcome)

        self.each([trials[number] for number in again], lambda n, o: imported(again[n], o))
        more = [replace(trials[number], tests=trials[number].others) for number in left]
        self.each(more, lambda n, o: report(left[n], o))

    def each(self, trials: Sequence[Trial], report: Report) -> None:
        """The same, from a process that has collected the tests or has imported nothing yet."""
        waiting, running = list(range(len(trials)))[::-1], dict[int, Child]()
        while waiting or running:
            while waiting and len(running) < self.jobs:
                number = waiting.pop()
                child = self._begun(trials[number])
                if child is None:
                    report(number, Outcome("import", "", 0.0))
                else:
                    running[number] = child
            time.sleep(0.01)
            for number, child in list(running.items()):
                outcome = self._outcome(child, trials[number].tests)
                if outcome is None:
                    continue
                del running[number]
                if outcome.by and not self._passes_without_edit(trials[number], outcome.by):
                    waiting.append(number)
                    continue
                self.learned.note(trials[number], outcome.by)
                report(number, outcome)

    def _begun(self, trial: Trial) -> Child | None:
        """A process that tries an edit; None where it cannot without importing."""
        tests = self.learned.ordered(trial, [test for test in trial.tests if self.sound.get(test, True)])
        source = (self.root / trial.path).read_text(encoding="utf-8")
        changes: list[tuple[FunctionType, CodeType]] | None = []
        if self.items and trial.edited != source:
            if trial.on_import or trial.module not in sys.modules:
                return None
            changes = live.exchanges(self.alive, str(self.root / trial.path), source, trial.edited)
            if changes is None:
                return None
        child = Child()
        if child.forked():
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            if not self.items:
                sys.meta_path.insert(0, _Edited(trial.module, str(self.root / trial.path), trial.edited))
                files = sorted({test.partition("::")[0] for test in tests})
                _leave(lambda: self._session(files, _Chosen(self, tests, child)))
            for function, code in changes:
                function.__code__ = code
            _leave(lambda: self.run_tests(self.items, tests, child))
        return child

    def _session(self, files: Sequence[str], plugin: object) -> int:
        os.chdir(self.root)
        options = ["-q", "-s", "--tb=no", "--assert=plain", "-p", "no:xdist", "-p", "no:cacheprovider"]
        code = int(pytest.main([*files, *options, f"--hypothesis-seed={self.seed}"], plugins=[plugin]))
        return 0 if code in (0, 5) else _FAILED  # 5: no test was run by pytest's own loop

    def run_tests(self, items: dict[str, pytest.Item], tests: Sequence[str], child: Child) -> int:
        """Runs tests until one fails, which ends the process; says each before it begins."""
        chosen = [items[test] for test in tests if test in items]
        for item, after in zip(chosen, [*chosen[1:], None], strict=True):
            child.say(item.nodeid)
            spent = time.process_time()
            limit = int(spent + _SLOWER * self.learned.seconds.get(item.nodeid, 0.0)) + _MORE_S
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return 0 if len(chosen) == len(tests) else _FAILED  # the edit has taken tests away

    def _outcome(self, child: Child, tests: Sequence[str]) -> Outcome | None:
        """None while the child runs."""
        ended = child.ended()
        for line in child.heard():
            child.doing = line
        if not ended:
            if child.silent_s() < _WALL * (_SLOWER * self.learned.seconds.get(child.doing, 0.0) + _MORE_S):
                return None
            child.end()
        child.close()
        status = child.status or 0
        if not status:
            return Outcome("survived", "", child.seconds)
        late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return Outcome("time" if late else "killed", child.doing, child.seconds)

    def _passes_without_edit(self, trial: Trial, test: str) -> bool:
        """Whether a test passes on the code as it is: asked once for each that has killed a mutant."""
        if test not in self.sound:
            source = (self.root / trial.path).read_text(encoding="utf-8")
            child = self._begun(replace(trial, edited=source, tests=(test,)))
            if child is None:
                raise RuntimeError(f"{trial.path} changed while its mutants were tried")
            while (outcome := self._outcome(child, [test])) is None:
                time.sleep(0.01)
            self.sound[test] = outcome.result == "survived"
        return self.sound[test]


class _Quick:
    """A plugin of pytest: laws have as many examples as in the quick suite; the first failure is the end."""

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        quick = settings(settings.default, phases=phases, database=None, print_blob=False, report_multiple_bugs=False)
        settings.register_profile("mutants", quick)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(_FAILED)


class _Room(_Quick):
    """Tries edits of live functions after the tests have been collected."""

    def __init__(self, tries: Tries, trials: Sequence[Trial], child: Child) -> None:
        self.tries, self.trials, self.child = tries, trials, child

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.tries.items = {item.nodeid: item for item in session.items}
        self.tries.alive = live.functions()
        gc.collect()
        gc.freeze()
        self.tries.each(self.trials, lambda n, o: self.child.say(json.dumps([n, o.result, o.by, o.seconds])))
        return True


class _Chosen(_Quick):
    """Runs some tests in a given order."""

    def __init__(self, tries: Tries, tests: Sequence[str], child: Child) -> None:
        self.tries, self.tests, self.child = tries, tests, child

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        status = self.tries.run_tests({item.nodeid: item for item in session.items}, self.tests, self.child)
        if status:
            os._exit(status)
        return True


class _Edited(SourceFileLoader):
    """Finds and loads one module from text instead of its file."""

    def __init__(self, module: str, path: str, source: str) -> None:
        super().__init__(module, path)
        self.source = source

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def _leave(run: Callable[[], int]) -> None:
    status = _FAILED
    try:
        status = run()
    finally:
        os._exit(status)
