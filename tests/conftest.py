"""What every test shares: which tests run when, in how many processes, and how long hypothesis may take."""

import gc
import hashlib
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before NumPy is loaded: every worker has a core, and threads of its BLAS that wait for each other take the others'.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

GOLDEN = (5**0.5 - 1) / 2
# Marks of tests that are no part of the quick suite.
LEFT_OUT = {"slow", "end_to_end"}

# Machines differ by a factor of ten; a slow example is not a wrong one.
EVERYWHERE = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("everywhere", EVERYWHERE)
settings.load_profile("everywhere")
# A check of a commit says the same each time that it runs; new examples are for those who run the suite themselves.
settings.register_profile("repeatable", EVERYWHERE, derandomize=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part 1/5`: a fifth of what is chosen, the one that `.ci/run` takes for every fifth commit."""
    parser.addoption("--part", default="0/1", metavar="K/N", help="of the chosen tests part K of N")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Whole folders of tests use every core where pytest-xdist is installed; `-n` decides otherwise, `-n 0` for one.

    A file or a test by its name stays in this process, and so does what needs a terminal (--pdb).
    """
    option = config.option
    undecided = getattr(option, "numprocesses", 0) is None and not hasattr(config, "workerinput")
    if undecided and not option.usepdb and not option.collectonly and all(Path(a).is_dir() for a in config.args):
        option.numprocesses, option.dist = os.cpu_count() or 1, "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    """Where Python may leave no bytecode beside the sources, pytest's cache keeps it, for the processes of tests too.

    Else each of the hundred processes that tests start compiles the whole library, and each worker all tests.
    """
    cache = getattr(config, "cache", None)
    if sys.dont_write_bytecode and sys.pycache_prefix is None and cache is not None:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(cache.mkdir("bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix


def pytest_sessionstart() -> None:
    """What collection makes stays until the end: machines, cases. The garbage collector finds nothing in it."""
    gc.disable()


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Machines that files of tests declare are traced by the worker that uses them, when it does; others never need to.

    A test that declares one traces it at once, as a user's file does.
    """
    from tinygpu.language import machine

    at_once, machine.trace_default = machine.trace_default, lambda machine: ()
    yield
    machine.trace_default = at_once


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Nor need it walk over all that again and again; and tests leave little that a walk is worth, their arrays apart.

    Arrays of the emulator count as one object each, however large: the steps may not be too long.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that do not say end_to_end are not imported by a run of such tests: they are seven of eight."""
    wanted = config.option.markexpr
    alone = " or " not in wanted and "end_to_end" in wanted.split(" and ")
    if alone and collection_path.is_file() and "end_to_end" not in collection_path.read_text():
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """The quick suite makes no cases of tests that it leaves out as a whole: there are more of them than of its own."""
    marks = {mark.name for mark in getattr(obj, "pytestmark", ()) if isinstance(mark, pytest.Mark)}
    left_out = _is_quick(collector.config) and inspect.isfunction(obj) and marks & LEFT_OUT
    return [] if left_out else None


def _is_quick(config: pytest.Config) -> bool:
    """Whether neither -m nor a test's name asks for tests that the quick suite leaves out."""
    return not config.option.markexpr and not any("::" in argument for argument in config.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow and end-to-end tests out unless -m or a test's name asks for them; skip GPU tests without a GPU."""
    _leave_to_the_long_run(items)
    if any(item.get_closest_marker("gpu") for item in items):
        from tinygpu.ptx.runtime.driver import available

        status = available()
        for item in items:
            if item.get_closest_marker("gpu") and not status.present:
                item.add_marker(pytest.mark.skip(reason=status.reason))
    if _is_quick(config):
        _try_fewer_examples(items)
        left = {i: None for i in items if any(i.get_closest_marker(name) for name in LEFT_OUT)}
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    take_part(config, items)


def take_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep part K of N parts into which the names of tests fall by their hashes: the same in every process and run."""
    which, parts = map(int, config.option.part.split("/"))
    if not 0 <= which < parts:
        raise pytest.UsageError(f"--part {which}/{parts} is no part: K/N with K from 0 to N - 1")
    mine = [int(hashlib.sha256(item.nodeid.encode()).hexdigest(), 16) % parts == which for item in items]
    config.hook.pytest_deselected(items=[item for item, kept in zip(items, mine, strict=True) if not kept])
    items[:] = [item for item, kept in zip(items, mine, strict=True) if kept]


def _try_fewer_examples(items: list[pytest.Item]) -> None:
    """In the quick suite laws are tried on a quarter of their examples; a run with -m, and a test by its name, try all.

    Hypothesis has no public way to change what a test's own @settings say; where the name below is gone, all are tried.
    """
    own = "_hypothesis_internal_use_settings"
    functions = {getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)}
    for law in (f for f in functions if hasattr(f, own)):
        chosen = getattr(law, own)
        fewer = min(chosen.max_examples, max(chosen.max_examples // 4, 5))
        setattr(law, own, settings(chosen, max_examples=fewer))


def _leave_to_the_long_run(items: list[pytest.Item]) -> None:
    """Of a test that is `sampled(n)` about every n-th case stays in the quick suite, the first too; others are slow.

    Steps of the golden ratio spread them evenly, and never in step with the values of one parameter.
    """
    seen: dict[str, int] = {}
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            name = item.nodeid.split("[")[0]
            seen[name] = seen.get(name, -1) + 1
            if seen[name] * GOLDEN % 1 >= 1 / marker.args[0]:
                item.add_marker(pytest.mark.slow)
