"""Programs have a type wherever one is shown, so that an editor completes the verbs: `p` is a Tracer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import tinygpu.language as language
from tinygpu.language import Choice, Machine, Option, Tracer
from tinygpu.machines.embedding import Embedding
from tinygpu.machines.matmul_hopper import MatmulHopper

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "machines").glob("*.py"), *(ROOT / "docs/examples").glob("*.py")])
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def shown(path: Path) -> Iterator[str]:
    """The Python of a file: all of it, or the blocks of a page, prompts taken away, excerpts of machines left out."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield text
        return
    for block in re.findall(r"^```python(?! in=)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        prompted = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", block, re.MULTILINE)
        yield "\n".join(prompted) if block.startswith(">>>") else block


def untyped(source: str) -> list[str]:
    """What programs of machines, and what they call with `p`, say of it, where that is not its type."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    arguments = [(f.name, a) for f in functions for a in f.args.args if a.arg == "p"]
    said = [(name, "" if a.annotation is None else ast.unparse(a.annotation)) for name, a in arguments]
    return [f"{name}: {kind or 'nothing'}" for name, kind in said if kind != "Tracer"]


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_program_names_its_type(path: Path) -> None:
    assert [wrong for source in shown(path) for wrong in untyped(source)] == []


def test_programs_are_found_in_pages() -> None:
    """What the test above looks at is there: blocks with prompts, saved files, machines."""
    pages = {p.name: sum(s.count("def program(self, p: Tracer)") for s in shown(p)) for p in PAGES}
    assert pages["language.md"] > 10 < pages["guide.md"] + 5
    assert untyped("class A:\n    def program(self, p): ...") == ["program: nothing"]


def test_the_type_is_what_a_program_is_given() -> None:
    given: list[object] = []

    class Copied(Embedding):
        def program(self, p: Tracer) -> None:
            given.append(p)
            super().program(p)

    assert given
    assert {type(p) for p in given} == {Tracer} == {get_type_hints(Machine.program)["p"]}
    assert "Tracer" in language.__all__


def test_what_is_decided_is_itself_in_a_class_body() -> None:
    """Types say that `self.schedule` may be anything in a program; of the class it is the declaration."""
    assert isinstance(MatmulHopper.schedule, Choice)
    assert isinstance(MatmulHopper.activation, Option)
