"""How a machine is written: what its class declares, what its methods do, and what its file says of it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tinygpu.language.declared import Declared


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a machine.

    file         its name
    told         the docstring of the file: what the operation is, what the idea is, what is searched and why
    declaration  the class down to its first method; of a machine that a function makes, the call
    program      its methods, or the program that the function wrote
    """

    file: str
    told: str
    declaration: str
    program: str


def source_of(machine: type[Declared]) -> Source:
    """Where a machine is written in its file: as a class, or as a name that a function's result is given."""
    path = Path(inspect.getfile(machine))
    text = path.read_text(encoding="utf-8")
    module = ast.parse(text)
    written = next(node for node in module.body if _names(node, machine.__name__))
    whole = _lines(text, written, written.lineno)
    told = inspect.cleandoc(ast.get_docstring(module) or "")
    if not isinstance(written, ast.ClassDef):
        made = textwrap.dedent(inspect.getsource(machine.program))
        return Source(path.name, told, whole, made.rstrip())
    methods = [node for node in written.body if isinstance(node, ast.FunctionDef)]
    begin = min((min([m.lineno, *(d.lineno for d in m.decorator_list)]) for m in methods), default=0)
    if not begin:
        return Source(path.name, told, whole, "")
    declared = "\n".join(text.split("\n")[written.lineno - 1 : begin - 1]).rstrip()
    return Source(path.name, told, declared, textwrap.dedent(_lines(text, written, begin)))


def _names(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.ClassDef) and node.name == name


def _lines(text: str, node: ast.stmt, begin: int) -> str:
    """The lines of a statement from one of them on."""
    return "\n".join(text.split("\n")[begin - 1 : node.end_lineno])
