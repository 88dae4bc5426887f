"""Instructions and their operands."""

from __future__ import annotations

import re
from dataclasses import replace

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.cursor import Cursor
from tinygpu.ptx.emulator.source.literals import is_special
from tinygpu.ptx.emulator.source.scopes import Scope, find_label, find_register, find_variable
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    FloatOperand,
    Function,
    GroupOperand,
    Guard,
    Instruction,
    IntegerOperand,
    Label,
    Operand,
    PairOperand,
    PartOperand,
    RegisterOperand,
    SinkOperand,
    SpecialOperand,
    SymbolOperand,
    VectorOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES

# Video instructions take bytes and halves of registers: %r1.b3, %r1.h10 (PTX ISA, "Video Instructions").
_PART = re.compile(r"\.(?:b[0-3]|h[01]|b[0-7]{2}|b[0-7]{4}|h[0-3]{2})")


class InstructionParser(Cursor):
    """Parses single instructions in the current scope of a function."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        super().__init__(text, first_line)
        self._scope = Scope(0, None)
        self._pending: list[tuple[int, Scope]] = []
        self._target_lists: list[tuple[str, Scope]] = []

    def _instruction(self, function: Function) -> None:
        guard: Guard | None = None
        if self._accept("@"):
            negated = self._accept("!")
            token = self._word("a predicate after @")
            register = find_register(self._scope, function, token.text)
            if not isinstance(register, RegisterOperand) or register.type_name != "pred":
                raise self._fail(f"{token.text} is no predicate register", token)
            guard = Guard(register, negated)
        opcode = self._word("an instruction")
        if opcode.text[0] == "%":
            raise self._fail(f"expected an instruction, found `{opcode.text}`", opcode)
        modifiers: list[str] = []
        while self._token.kind == "dot":
            modifiers.append(self._next().text[1:])
        operands: list[Operand] = []
        if not self._is(";"):
            operands.append(self._operand(function, opcode.text))
            while self._accept(","):
                operands.append(self._operand(function, opcode.text))
        self._expect(";", f"after `{opcode.text}`")
        types = tuple(m for m in modifiers if m in TYPES)
        self._pending.append((len(function.body), self._scope))
        function.body.append(
            Instruction(opcode.text, tuple(modifiers), types, tuple(operands), guard, opcode.line, opcode.column)
        )

    def _operand(self, function: Function, opcode: str) -> Operand:
        operand = self._simple_operand(function, opcode)
        if self._accept("|"):
            return PairOperand(operand, self._simple_operand(function, opcode))
        return operand

    def _simple_operand(self, function: Function, opcode: str) -> Operand:
        token = self._token
        if token.kind == "word":
            return self._named(function)
        if self._accept("["):
            return self._address(function)
        if self._accept("{"):
            elements: list[Operand] = []
            while not self._accept("}"):
                if self._is("{") or self._is("["):
                    raise self._fail("a vector operand holds registers and constants only")
                elements.append(self._simple_operand(function, opcode))
                if not self._is("}"):
                    self._expect(",", "between the elements of a vector")
            return VectorOperand(tuple(elements))
        if token.text == "(" and opcode == "call":
            self._next()
            group: list[Operand] = []
            while not self._accept(")"):
                group.append(self._named(function) if self._token.kind == "word" else self._number())
                if not self._is(")"):
                    self._expect(",", "between arguments")
            return GroupOperand(tuple(group))
        if token.text == "-" and self._peek().kind == "word":
            self._next()
            name = self._token
            operand = self._named(function)
            if isinstance(operand, RegisterOperand):
                operand = PartOperand(operand, "")
            if not isinstance(operand, PartOperand):
                raise self._fail(f"- stands before a constant or a register, not `{name.text}`", name)
            return replace(operand, negated=True)
        if token.text == "!" and self._peek().kind == "word":
            self._next()
            name = self._next()
            register = find_register(self._scope, function, name.text)
            if not isinstance(register, RegisterOperand) or register.type_name != "pred":
                raise self._fail(f"! stands before a predicate register, not `{name.text}`", name)
            return replace(register, negated=True)
        return self._number()

    def _number(self) -> Operand:
        token = self._token
        negative = token.text == "-" and self._peek().kind == "float"
        if negative:
            self._next()
            token = self._token
        if token.kind == "float":
            self._next()
            width, pattern = token.bits
            return FloatOperand(width, pattern ^ (1 << (width - 1)) if negative else pattern)
        return IntegerOperand(self._constant())

    def _named(self, function: Function) -> Operand:
        token = self._next()
        name = token.text
        if name == "_":
            return SinkOperand()
        component = self._token
        adjacent = (
            component.kind == "dot"
            and component.line == token.line
            and component.column == token.column + len(name)
        )
        register = find_register(self._scope, function, name)
        if isinstance(register, VectorOperand) and adjacent:
            index = {".x": 0, ".y": 1, ".z": 2, ".w": 3, ".r": 0, ".g": 1, ".b": 2, ".a": 3}.get(self._next().text, 9)
            if index >= len(register.elements):
                raise self._fail(f"{name}{component.text} is no element of the vector register {name}", component)
            return register.elements[index]
        if isinstance(register, RegisterOperand) and adjacent and _PART.fullmatch(component.text):
            return PartOperand(register, self._next().text[1:])
        if register is not None:
            return register
        if name == "WARP_SZ":
            return IntegerOperand(32)
        if name.startswith("%"):
            if adjacent:
                name += self._next().text
            if not is_special(name):
                raise self._fail(f"register {name} is not declared", token)
            return SpecialOperand(name)
        offset = 0
        if self._is("+") or self._is("-"):
            sign = -1 if self._next().text == "-" else 1
            offset = sign * self._constant()
        key = find_variable(self._scope, name)
        return SymbolOperand(key if key is not None else name, offset)

    def _address(self, function: Function) -> Operand:
        base: RegisterOperand | SymbolOperand | None = None
        offset = 0
        coordinates: tuple[Operand, ...] = ()
        if self._token.kind == "word":
            token = self._token
            named = self._named(function)
            if isinstance(named, SymbolOperand):
                base, offset = SymbolOperand(named.name), named.offset
            elif isinstance(named, RegisterOperand):
                base = named
            else:
                raise self._fail(f"`{token.text}` cannot be an address", token)
            if self._is("+") or self._is("-"):
                sign = -1 if self._next().text == "-" else 1
                offset += sign * self._constant()
        else:
            offset = self._constant()
        if self._accept(","):
            rest: list[Operand] = [self._simple_operand(function, "")]
            while self._accept(","):
                rest.append(self._simple_operand(function, ""))
            coordinates = tuple(rest)
        self._expect("]", "to close the address")
        # [a].unified: the address is the same for all threads of the unified memory; nothing changes.
        self._accept(".unified")
        if not -(1 << 63) <= offset < 1 << 64:
            raise self._fail(f"the offset {offset} does not fit into 64 bits")
        return AddressOperand(base, offset, coordinates)

    # ---- labels -------------------------------------------------------------------------------------------------

    def _resolve(self, function: Function) -> None:
        """Give branch operands their label's unique key, now that all labels of each scope are known."""
        for index, scope in self._pending:
            instruction = function.body[index]
            if not isinstance(instruction, Instruction) or instruction.opcode not in ("bra", "brx", "call"):
                continue
            operands = tuple(
                SymbolOperand(find_label(scope, operand.name) or operand.name, operand.offset)
                if isinstance(operand, SymbolOperand)
                else operand
                for operand in instruction.operands
            )
            function.body[index] = replace(instruction, operands=operands)
        for key, scope in self._target_lists:
            names = function.branch_targets[key]
            function.branch_targets[key] = tuple(find_label(scope, name) or name for name in names)
        labels = {statement.key for statement in function.body if isinstance(statement, Label)}
        for statement in function.body:
            if not isinstance(statement, Instruction) or statement.opcode != "bra":
                continue
            target = statement.operands[0] if statement.operands else None
            if not isinstance(target, SymbolOperand) or target.name not in labels:
                name = target.name if isinstance(target, SymbolOperand) else "?"
                raise PtxSyntaxError(statement.line, statement.column, f"bra goes to {name}, which is no label here")
