"""One edited module under its tests, in a forked process: the checkout stays as it is.

The process that forks has imported pytest and what the package needs, but nothing of the package; the child imports the
edited text in the module's place. Tests are chosen after they are collected, so that laws are tried on as many examples
as in the quick suite. Examples that fail are not shrunk, and none is kept.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType

import pytest

_NEEDED = ("numpy", "ml_dtypes", "sympy", "z3", "hypothesis", "rich", "typer")
_MEMORY = 8 << 30


def import_what_is_needed() -> None:
    """What every child would import again; not the package itself."""
    for name in _NEEDED:
        importlib.import_module(name)
    if any(name.partition(".")[0] == "tinygpu" for name in sys.modules):
        raise RuntimeError("tinygpu is imported already: its modules could not be edited")


def start(root: Path, module: str, path: str, source: str, tests: Sequence[str], seconds: float, seed: int) -> int:
    """Forks, and returns the child's process number; it may take so many seconds of processor time."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        os.setsid()
        os.chdir(root)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        limit = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        sys.meta_path.insert(0, _Edited(module, str(root / path), source))
        files = sorted({test.partition("::")[0] for test in tests})
        options = ["-x", "-q", "--tb=no", "-p", "no:xdist", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
        status = int(pytest.main([*files, *options], plugins=[_Chosen(tests)]))
    finally:
        os._exit(status)


def ended(pid: int, begun: float, wall: float) -> str | None:
    """None while the child runs; then "survived", "killed", "time" or "nothing ran"."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        if time.monotonic() - begun < wall:
            return None
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "time"
    if os.WIFSIGNALED(status):
        return "time" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "killed"
    code = os.WEXITSTATUS(status)
    return {0: "survived", int(pytest.ExitCode.NO_TESTS_COLLECTED): "nothing ran"}.get(code, "killed")


class _Edited(SourceFileLoader):
    """Finds and loads one module from text instead of its file."""

    def __init__(self, module: str, path: str, source: str) -> None:
        super().__init__(module, path)
        self.source = source

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _Chosen:
    """A plugin of pytest: only some of the tests, in a given order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.order = {test: place for place, test in enumerate(tests)}

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.default, phases=phases, database=None, print_blob=False)
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])
