"""Every example in a docstring of the four rooms runs and prints what it shows."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {"tinygpu": "tinygpu", "machines": "tinygpu.machines", "search": "tinygpu.search", "ptx": "tinygpu.ptx"}


def modules_with_examples() -> list[str]:
    """Names of the modules that hold a `>>>`, in order."""
    return [
        ".".join((package, *path.relative_to(ROOT / room).with_suffix("").parts)).removesuffix(".__init__")
        for room, package in ROOMS.items()
        for path in sorted((ROOT / room).rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_print_what_they_show(name: str) -> None:
    printed: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    tests = [test for test in doctest.DocTestFinder().find(importlib.import_module(name)) if test.examples]
    for test in tests:
        runner.run(test, out=printed.append)
    assert tests, f"{name} holds '>>> ', but no docstring of it has an example"
    assert runner.failures == 0, "".join(printed)
