"""A walker goes by what blocks say of themselves: nowhere does one test name several classes of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinygpu.program import nodes as n

ROOT = Path(__file__).parents[3]
ROOMS = ("tinygpu", "ptx", "search", "machines")
BLOCKS = frozenset(
    name
    for name, kind in vars(n).items()
    if isinstance(kind, type) and issubclass(kind, n.Statement) and kind.children is not n.Statement.children
)

NAMED = re.compile(rf"\b({'|'.join(sorted(BLOCKS))})\b")


def asked_classes(tree: ast.AST) -> Iterator[tuple[int, ast.AST]]:
    """(line, what is tested for) of every test of a value's class: isinstance, issubclass, type(), match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            if node.func.id in ("isinstance", "issubclass"):
                yield node.lineno, node.args[1]
        elif isinstance(node, ast.Compare) and _asks_type(node.left):
            yield from ((node.lineno, other) for other in node.comparators)
        elif isinstance(node, ast.match_case):
            yield node.pattern.lineno, node.pattern


def _asks_type(tree: ast.AST) -> bool:
    """Whether an expression has a call of `type` in it."""
    return any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "type"
        for call in ast.walk(tree)
    )


def several_blocks(source: str) -> list[int]:
    """Lines of a file at which one test names more than one class of blocks, or a name that stands for several."""
    tree = ast.parse(source)
    groups: dict[str, set[str]] = {}
    for node in ast.walk(tree):  # KINDS = (n.Loop, n.Produce)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.BinOp):
            groups |= {t.id: _blocks(node.value, {}) for t in node.targets if isinstance(t, ast.Name)}
    return [line for line, tested in asked_classes(tree) if len(_blocks(tested, groups)) > 1]


def _blocks(tested: ast.AST, groups: dict[str, set[str]]) -> set[str]:
    names = [i.attr if isinstance(i, ast.Attribute) else i.id for i in ast.walk(tested) if isinstance(i, WORDS)]
    return {name for name in names if name in BLOCKS}.union(*[groups.get(name, set()) for name in names])


WORDS = (ast.Attribute, ast.Name)


@pytest.mark.end_to_end
def test_no_test_names_several_classes_of_blocks() -> None:
    files = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    named = {name: text for name, text in texts.items() if NAMED.search(text)}
    assert len(named) > 20
    found = {name: several_blocks(text) for name, text in named.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(s, (n.Loop, n.Produce))",
        "isinstance(s, n.Loop | n.Consume)",
        "KINDS = (n.Loop, n.FixUp)\nisinstance(s, KINDS)",
        "type(s) in (Loop, Scope)",
        "match s:\n    case n.Scope() | n.InRole():\n        pass",
        "match s:\n    case (n.Loop() | n.Pipelined()) as loop:\n        pass",
    ],
)
def test_such_a_test_is_found(source: str) -> None:
    assert several_blocks(source)


def test_one_class_of_blocks_may_be_tested_for() -> None:
    assert not several_blocks("isinstance(s, n.Loop)\nisinstance(s, (n.Load, n.Loop))")
