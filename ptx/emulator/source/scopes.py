"""Names inside one function: registers, variables and labels, with nested { } scopes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.lexer import Token
from tinygpu.ptx.emulator.source.syntax import Function, RegisterOperand, VectorOperand


@dataclass(slots=True)
class Scope:
    """One { }: what it declares, and the scope around it.

    found  registers by the names that were looked up from here, since this scope last declared something
    """

    number: int
    parent: Scope | None
    registers: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    vectors: dict[str, tuple[int, str]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    found: dict[str, RegisterOperand | VectorOperand] = field(default_factory=dict)

    def key(self, name: str) -> str:
        """The name under which something declared here is unique in its function."""
        return name if self.number == 0 else f"{name}#{self.number}"

    def chain(self) -> list[Scope]:
        """This scope and those around it, innermost first."""
        result: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            result.append(scope)
            scope = scope.parent
        return result


def split_numbered(name: str) -> tuple[str, int] | None:
    """("%r", 12) of "%r12"; None where the name does not end in a plain number."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if not digits or len(digits) > 9 or (len(digits) > 1 and digits[0] == "0"):
        return None
    return stem, int(digits)


def find_register(scope: Scope, function: Function, name: str) -> RegisterOperand | VectorOperand | None:
    """The register called `name` as seen from `scope`; a vector register gives its elements, a .b128 its halves."""
    register = scope.found.get(name)
    if register is None:
        register = _look_up(scope, function, name)
        if register is not None:
            scope.found[name] = register
    return register


def _look_up(scope: Scope, function: Function, name: str) -> RegisterOperand | VectorOperand | None:
    """The same, by the declarations of this scope and those around it."""
    numbered = split_numbered(name)
    for level in scope.chain():
        type_name = level.registers.get(name)
        if type_name is None and numbered is not None:
            declared = level.ranges.get(numbered[0])
            if declared is not None and numbered[1] < declared[0]:
                type_name = declared[1]
        if type_name == "b128":
            # A 128-bit register is its two halves, the low one first.
            halves = [f"{name}.lo", f"{name}.hi"]
            for half in halves:
                function.registers[level.key(half)] = "b64"
            return VectorOperand(tuple(RegisterOperand(half, level.key(half), "b64") for half in halves))
        if type_name is not None:
            key = level.key(name)
            function.registers[key] = type_name
            return RegisterOperand(name, key, type_name)
        vector = level.vectors.get(name)
        if vector is not None:
            count, type_name = vector
            elements = []
            for suffix in "xyzw"[:count]:
                key = level.key(f"{name}.{suffix}")
                function.registers[key] = type_name
                elements.append(RegisterOperand(f"{name}.{suffix}", key, type_name))
            return VectorOperand(tuple(elements))
        if name in level.variables or name in level.labels:
            return None
    return None


def find_variable(scope: Scope, name: str) -> str | None:
    """The key of the function's own variable called `name`, or None."""
    for level in scope.chain():
        if name in level.variables:
            return level.variables[name]
    return None


def find_label(scope: Scope, name: str) -> str | None:
    """The key of the label called `name`, or None."""
    for level in scope.chain():
        if name in level.labels:
            return level.labels[name]
    return None


def declare(scope: Scope, table: dict[str, str], name: str, value: str, token: Token, what: str) -> None:
    """Enter a name, refusing a second declaration in the same scope."""
    if name in table or name in scope.registers or name in scope.variables or name in scope.labels:
        raise PtxSyntaxError(token.line, token.column, f"{what} {name} is declared twice in the same scope")
    table[name] = value
    scope.found.clear()
