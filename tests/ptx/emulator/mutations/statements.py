"""The statements of a PTX kernel as places in its text, so that one of them can be edited."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"^[ \t]*(?:\.visible |\.weak )?[ \t]*\.entry\s+([\w$]+)", re.MULTILINE)
_SKIPPED = re.compile(r"[\s{}]+|[\w$%]+\s*:(?!:)|\.(?:loc|file)\b[^\n]*|\.[a-z][^;{}]*?(?:;|(?=\{))|;")
_STATEMENT = re.compile(r"(@!?[\w$%]+\s+)?([a-z][\w.:]*)([^;]*);", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction.

    start, end  where it stands in the text, its semicolon included
    guard       "@%p1 " or ""
    name        opcode with modifiers
    operands    in order, as they are written
    """

    start: int
    end: int
    guard: str
    name: str
    operands: tuple[str, ...]

    @property
    def parts(self) -> list[str]:
        """Opcode and modifiers one by one; `shared::cta` is one."""
        return self.name.split(".")

    def has(self, *parts: str) -> bool:
        """Whether all of these are among its parts."""
        return set(parts) <= set(self.parts)

    def with_name(self, name: str, *operands: str) -> str:
        """The text of another instruction under the same guard."""
        return f"{self.guard}{name} {', '.join(operands)};" if operands else f"{self.guard}{name};"

    def without(self, *parts: str) -> str:
        """Its name without these parts."""
        return ".".join(p for p in self.parts if p not in parts)

    def __str__(self) -> str:
        return self.with_name(self.name, *self.operands)


def entries(text: str) -> list[str]:
    """Names of the kernels of a module."""
    return [m[1] for m in _ENTRY.finditer(_without_comments(text))]


def isolate(text: str, entry: str) -> str:
    """The module without its other kernels: it is parsed once per mutant."""
    bare = _without_comments(text)
    kept, at = [], 0
    for found in _ENTRY.finditer(bare):
        if found[1] != entry:
            end = _end_of_body(bare, found.end())
            kept.append(text[at : found.start()])
            at = end
    kept.append(text[at:])
    return "".join(kept)


def statements(text: str, entry: str) -> list[Statement]:
    """The instructions of one kernel, in the order of the text."""
    bare = _without_comments(text)
    head = next((m for m in _ENTRY.finditer(bare) if m[1] == entry), None)
    if head is None:
        raise LookupError(f"no kernel {entry!r}; there are {', '.join(entries(text))}")
    at, end = bare.index("{", _end_of_parameters(bare, head.end())), _end_of_body(bare, head.end())
    result = []
    while at < end:
        skipped = _SKIPPED.match(bare, at)
        if skipped:
            at = skipped.end()
            continue
        found = _STATEMENT.match(bare, at)
        if found is None:
            raise ValueError(f"no statement at {bare[at : at + 60]!r}")
        guard = " ".join(found[1].split()) + " " if found[1] else ""
        result.append(Statement(at, found.end(), guard, found[2], tuple(_operands(found[3]))))
        at = found.end()
    return result


def replace(text: str, edits: Sequence[tuple[Statement, str]]) -> str:
    """The text with these statements replaced; lines keep their numbers."""
    for statement, new in sorted(edits, key=lambda e: -e[0].start):
        breaks = text[statement.start : statement.end].count("\n")
        text = text[: statement.start] + new + "\n" * breaks + text[statement.end :]
    return text


def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _end_of_parameters(bare: str, at: int) -> int:
    opening = re.compile(r"[({]").search(bare, at)
    if opening is None or opening[0] == "{":
        return at
    return bare.index(")", opening.start())


def _end_of_body(bare: str, at: int) -> int:
    """Behind the brace that ends the body that begins after `at`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(bare, _end_of_parameters(bare, at)):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return found.end()
    raise ValueError("a body without an end")


def _operands(text: str) -> list[str]:
    """Operands as they are written: split at commas outside brackets."""
    result, depth, part = [], 0, ""
    for letter in text.strip():
        depth += (letter in "[{(") - (letter in ")}]")
        if letter == "," and not depth:
            result.append(part.strip())
            part = ""
        else:
            part += letter
    return [*result, part.strip()] if part.strip() else result
