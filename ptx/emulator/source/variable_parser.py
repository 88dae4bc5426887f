"""Declarations of variables, parameters and prototypes, with their initial values."""

from __future__ import annotations

from tinygpu.ptx.emulator.source.instruction_parser import InstructionParser
from tinygpu.ptx.emulator.source.lexer import Token
from tinygpu.ptx.emulator.source.literals import float_pattern
from tinygpu.ptx.emulator.source.scopes import Scope, declare
from tinygpu.ptx.emulator.source.syntax import Function, Prototype, SymbolOperand, Variable
from tinygpu.ptx.emulator.source.types import TYPES

SPACES = {".global": "global", ".shared": "shared", ".const": "const", ".local": "local", ".param": "param"}
# Largest variable of each space. PTX leaves global memory to the device; .const has 64 KB (PTX ISA, "Constant State
# Space"), .local 512 KB per thread (CUDA C++ Programming Guide, "Technical Specifications"), .param 32,764 bytes.
_MOST_BYTES = {"global": 1 << 32, "const": 1 << 16, "local": 1 << 19, "shared": 1 << 20, "param": 32764}
_MOST_DIMENSIONS = 16
Element = tuple[int, int, int | SymbolOperand]


class VariableParser(InstructionParser):
    """Parses what declares memory."""

    def _type(self) -> str:
        token = self._next()
        if token.kind != "dot" or token.text[1:] not in TYPES:
            raise self._fail(f"expected a type such as .b32, found `{token.text}`", token)
        return token.text[1:]

    def _parameters(self, function: Function | None) -> tuple[Variable, ...]:
        """( ... ) of a function, whose names are declared, or (without a function) of a prototype."""
        self._expect("(", "before the parameters")
        result: list[Variable] = []
        if self._accept(")"):
            return ()
        scope = self._scope
        while True:
            token = self._token
            if function is None:
                # The parameters of a prototype have no names, or all have the name _.
                self._scope = Scope(0, None)
            if self._accept(".reg"):
                type_name = self._type()
                name = self._word("the parameter's name")
                declare(self._scope, self._scope.registers, name.text, type_name, name, "parameter")
                size = max(1, TYPES[type_name].bits // 8)
                result.append(Variable(name.text, "reg", size, size, type_name, False, (), name.line, name.text))
            elif self._is(".param"):
                result.extend(self._variables("", parameter=True))
            else:
                raise self._fail(f"a parameter starts with .param, found `{token.text}`")
            self._scope = scope
            if self._accept(")"):
                return tuple(result)
            self._expect(",", "between parameters")

    def _prototype(self, line: int) -> Prototype:
        """What follows .callprototype: (results) _ (parameters) and directives, up to the semicolon."""
        returns = self._parameters(None) if self._is("(") else ()
        self._word("_ in the place of the function's name")
        parameters = self._parameters(None) if self._is("(") else ()
        while not self._accept(";"):
            if self._token.kind not in ("dot", "integer"):
                raise self._fail(f"`{self._token.text}` does not belong into a prototype")
            self._next()
        return Prototype(parameters, returns, line)

    def _variables(self, linkage: str, parameter: bool = False) -> list[Variable]:
        space_token = self._next()
        space = SPACES[space_token.text]
        align, type_name, vector, pointer = 0, "", 1, False
        while self._token.kind == "dot":
            token = self._next()
            text = token.text
            if text == ".align":
                given = self._constant()
                if given <= 0 or given & (given - 1) or given > 1 << 20:
                    raise self._fail(f".align takes a power of two up to 2^20, not {given}", token)
                # Behind .ptr it speaks of what the parameter points to.
                align = align if pointer else given
            elif text in (".v2", ".v4"):
                vector = int(text[2:])
            elif text[1:] in TYPES and text != ".pred":
                type_name = text[1:]
            elif text in (".ptr", ".global", ".shared", ".const", ".local", ".generic"):
                if text == ".ptr" and not parameter:
                    raise self._fail(".ptr stands only on parameters", token)
                pointer |= text == ".ptr"
            elif text == ".attribute":
                self._skip_attribute()
            else:
                raise self._fail(f"`{text}` does not belong into the declaration of a variable", token)
        if not type_name:
            raise self._fail(f"this {space_token.text} variable has no type")
        result = [self._variable(space, align, type_name, vector, linkage, parameter)]
        if parameter:
            return result
        while self._accept(","):
            result.append(self._variable(space, align, type_name, vector, linkage, False))
        self._expect(";", "after the variable")
        return result

    def _skip_attribute(self) -> None:
        self._expect("(", "after .attribute")
        while not self._accept(")"):
            if self._ended:
                raise self._fail("the text ends inside .attribute")
            self._next()

    def _variable(
        self, space: str, align: int, type_name: str, vector: int, linkage: str, parameter: bool
    ) -> Variable:
        name = self._word("the name of the variable")
        element = max(1, TYPES[type_name].bits // 8)
        if self._is("<"):
            raise self._fail(f"{name.text}<n>: numbered variables are not PTX for memory", name)
        open_ended, counts = self._dimensions(name)
        if vector > 1:
            counts.append(vector)
        count = 1
        for factor in counts:
            count *= factor
        if count * element > _MOST_BYTES[space]:
            raise self._fail(
                f"{name.text} has {count * element} bytes, but a .{space} variable has at most {_MOST_BYTES[space]}",
                name,
            )
        elements: tuple[Element, ...] = ()
        size = 0 if open_ended else count * element
        if self._accept("="):
            elements = self._initialiser(type_name, element, [0, *counts] if open_ended else counts, name)
            needed = max((offset + width for offset, width, _ in elements), default=0)
            if open_ended:
                row = count * element
                size = (needed + row - 1) // max(row, 1) * row
            elif needed > size:
                raise self._fail(f"{name.text} has {size} bytes but {needed} bytes of initial values", name)
        key = self._scope.key(name.text)
        extern = linkage == "extern" or (open_ended and not elements)
        variable = Variable(
            name.text, space, align or element * vector, size, type_name, extern, elements, name.line, key, linkage
        )
        if not (parameter and name.text == "_"):
            declare(self._scope, self._scope.variables, name.text, key, name, "variable")
        return variable

    def _dimensions(self, name: Token) -> tuple[bool, list[int]]:
        """([] comes first, the other numbers of elements) of an array; ([], empty) of a scalar."""
        open_ended = False
        counts: list[int] = []
        while self._accept("["):
            if self._is("]") and not counts and not open_ended:
                self._next()
                open_ended = True
                continue
            number = self._constant()
            if not 0 <= number <= 1 << 40:
                raise self._fail(f"{name.text} has an impossible number of elements, {number}", name)
            counts.append(number)
            if len(counts) > _MOST_DIMENSIONS:
                raise self._fail(f"{name.text} has more than {_MOST_DIMENSIONS} dimensions", name)
            self._expect("]", "after the number of elements")
        return open_ended, counts

    # ---- initial values -----------------------------------------------------------------------------------------

    def _initialiser(self, type_name: str, element: int, counts: list[int], name: Token) -> tuple[Element, ...]:
        """The values in braces; an inner pair of braces fills the next row, what it leaves out is zero."""
        if not self._is("{"):
            return ((0, element, self._initial(type_name, element)),)
        rows = [element]
        for count in reversed(counts[1:]):
            rows.append(rows[-1] * count)
        values: list[Element] = []
        # Where the row ends that each open brace fills (0: the number of rows is open).
        ends: list[int] = []
        offset = 0
        while True:
            if self._is("{"):
                token = self._next()
                if len(ends) >= max(1, len(counts)):
                    raise self._fail(f"more braces than {name.text} has dimensions", token)
                row = rows[len(rows) - len(ends)] if ends else 0
                ends.append(offset + row)
                if self._accept("}"):
                    offset = max(ends.pop(), offset)
                    if not ends:
                        return tuple(values)
                    self._after_value()
            elif self._accept("}"):
                offset = max(ends.pop(), offset)
                if not ends:
                    return tuple(values)
                self._after_value()
            else:
                values.append((offset, element, self._initial(type_name, element)))
                offset += element
                self._after_value()

    def _after_value(self) -> None:
        if not self._accept(",") and not self._is("}"):
            raise self._fail(f"expected `,` between initial values, found `{self._token.text}`")

    def _initial(self, type_name: str, element: int) -> int | SymbolOperand:
        token = self._token
        negative = token.text == "-" and self._peek().kind == "float"
        if negative:
            self._next()
            token = self._token
        if token.kind == "float":
            self._next()
            return float_pattern(token.bits, TYPES[type_name].bits, negative)
        if token.kind == "word" and token.text != "WARP_SZ":
            return self._initial_symbol()
        value = self._constant()
        if self._accept("("):
            # 0xff00(name): these bits of the address.
            inner = self._initial_symbol()
            self._expect(")", "after the name")
            return SymbolOperand(inner.name, inner.offset, value & ((1 << 64) - 1))
        return value & ((1 << (8 * element)) - 1)

    def _initial_symbol(self) -> SymbolOperand:
        name = self._word("a variable or function")
        if name.text == "generic" and self._accept("("):
            name = self._word("a variable")
            self._expect(")", "after the variable")
        offset = 0
        if self._is("+") or self._is("-"):
            sign = -1 if self._next().text == "-" else 1
            offset = sign * self._constant()
        return SymbolOperand(name.text, offset)
