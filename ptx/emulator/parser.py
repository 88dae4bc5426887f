"""PTX text to a syntax tree. Malformed text raises PtxSyntaxError; nothing here knows what an instruction does."""

from __future__ import annotations

import struct
from dataclasses import replace

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.lexer import Token, tokenize
from tinygpu.ptx.emulator.scopes import Scope, declare, find_label, find_register, find_variable
from tinygpu.ptx.emulator.syntax import (
    AddressOperand,
    FloatOperand,
    Function,
    GroupOperand,
    Guard,
    Instruction,
    IntegerOperand,
    Label,
    Module,
    Operand,
    PairOperand,
    RegisterOperand,
    SinkOperand,
    SpecialOperand,
    SymbolOperand,
    Variable,
    VectorOperand,
)
from tinygpu.ptx.emulator.types import TYPES

_LINKING = (".extern", ".visible", ".weak", ".common")
_SPACES = {".global": "global", ".shared": "shared", ".const": "const", ".local": "local", ".param": "param"}
_NUMBER_DIRECTIVES = (
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank",
    ".abi_preserve", ".abi_preserve_control",
)  # fmt: skip
_FLAG_DIRECTIVES = (".explicitcluster", ".blocksareclusters", ".noreturn")
_MAX_DEPTH = 64
_MAX_VARIABLE_BYTES = 1 << 40
# Binary operators of constant expressions, loosest first (PTX ISA, "Constant Expressions").
_OPERATORS: tuple[tuple[str, ...], ...] = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))


def parse(text: str) -> Module:
    """The syntax tree of one PTX module."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._at = 0
        self._lines = tuple(text.split("\n"))
        self._scopes = 0
        self._function: Function | None = None
        self._scope = Scope(0, None)
        self._pending: list[tuple[int, Scope]] = []

    # ---- tokens -------------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _fail(self, sentence: str, token: Token | None = None) -> PtxSyntaxError:
        token = token or self._token
        return PtxSyntaxError(token.line, token.column, sentence)

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._at += 1
        return token

    def _is(self, text: str) -> bool:
        token = self._token
        return token.text == text and token.kind in ("punct", "dot", "word")

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str, after: str) -> Token:
        if not self._is(text):
            raise self._fail(f"expected `{text}` {after}, found `{self._token.text}`")
        return self._next()

    def _word(self, what: str) -> Token:
        if self._token.kind != "word":
            raise self._fail(f"expected {what}, found `{self._token.text}`")
        return self._next()

    # ---- module -------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        if not self._is(".version"):
            raise self._fail(f"a PTX module starts with .version, found `{self._token.text}`")
        self._next()
        token = self._next()
        if token.kind != "float" or token.text.count(".") != 1 or not token.text.replace(".", "").isdigit():
            raise self._fail(f"expected a version such as 8.0, found `{token.text}`", token)
        major, minor = token.text.split(".")
        version = (int(major), int(minor or "0"))
        self._expect(".target", "after .version")
        target = self._word("a target such as sm_80").text
        while self._accept(","):
            self._word("a target option")
        module = Module(version, target, 64, [], [], self._lines)
        while self._token.kind != "end":
            self._module_item(module)
        return module

    def _module_item(self, module: Module) -> None:
        token = self._token
        if self._accept(".address_size"):
            size = self._next()
            if size.kind != "integer" or size.bits[1] not in (32, 64):
                raise self._fail(f".address_size is 32 or 64, not `{size.text}`", size)
            module.address_size = size.bits[1]
            return
        if self._skip_debug():
            return
        extern = False
        while self._token.text in _LINKING:
            extern = extern or self._token.text == ".extern"
            self._next()
        if self._is(".entry") or self._is(".func"):
            module.functions.append(self._parse_function(self._next().text == ".entry"))
        elif self._token.text in _SPACES:
            self._scope = Scope(0, None)
            module.variables.extend(self._variables(extern))
        elif self._accept(".alias"):
            self._skip_statement()
        elif self._accept(";"):
            return
        else:
            raise self._fail(f"`{token.text}` starts no declaration of a PTX module", token)

    def _skip_statement(self) -> None:
        while not self._is(";"):
            if self._token.kind == "end":
                raise self._fail("the text ends inside a statement")
            self._next()
        self._next()

    def _skip_debug(self) -> bool:
        """Skip .file, .loc, .pragma and .section: they change nothing of what runs."""
        if self._token.kind != "dot":
            return False
        text = self._token.text
        if text == ".pragma":
            self._skip_statement()
            return True
        if text in (".file", ".loc"):
            line = self._token.line
            while self._token.line == line and self._token.kind != "end":
                self._next()
            return True
        if text == ".section":
            self._next()
            self._next()
            self._expect("{", "after the section's name")
            while not self._accept("}"):
                if self._token.kind == "end":
                    raise self._fail("the text ends inside a section")
                self._next()
            return True
        return False

    # ---- functions ----------------------------------------------------------------------------------------------

    def _parse_function(self, is_entry: bool) -> Function:
        self._scope = Scope(0, None)
        self._scopes = 0
        self._pending = []
        line = self._token.line
        function = Function("", is_entry, (), (), line)
        self._function = function
        if not is_entry and self._is("("):
            function.returns = self._parameters(function)
        function.name = self._word("the name of the function").text
        if self._is("("):
            function.parameters = self._parameters(function)
        self._function_directives(function)
        if self._accept(";"):
            function.has_body = False
            return function
        self._expect("{", "to open the function's body")
        self._body(function)
        return function

    def _function_directives(self, function: Function) -> None:
        while self._token.kind == "dot":
            token = self._token
            if token.text in _FLAG_DIRECTIVES:
                self._next()
                function.directives[token.text[1:]] = ()
            elif token.text in _NUMBER_DIRECTIVES:
                self._next()
                numbers = [self._constant()]
                while self._accept(","):
                    numbers.append(self._constant())
                function.directives[token.text[1:]] = tuple(numbers)
            elif token.text == ".attribute":
                self._next()
                self._expect("(", "after .attribute")
                while not self._accept(")"):
                    if self._token.kind == "end":
                        raise self._fail("the text ends inside .attribute")
                    self._next()
            elif not self._skip_debug():
                raise self._fail(f"`{token.text}` is no directive of a function", token)

    def _parameters(self, function: Function) -> tuple[Variable, ...]:
        self._expect("(", "before the parameters")
        result: list[Variable] = []
        if self._accept(")"):
            return ()
        while True:
            token = self._token
            if self._accept(".reg"):
                type_name = self._type()
                name = self._word("the parameter's name")
                declare(self._scope, self._scope.registers, name.text, type_name, name, "parameter")
                function.registers[name.text] = type_name
                size = max(1, TYPES[type_name].bits // 8)
                result.append(Variable(name.text, "reg", size, size, type_name, False, (), name.line, name.text))
            elif self._is(".param"):
                result.extend(self._variables(False, parameter=True))
            else:
                raise self._fail(f"a parameter starts with .param, found `{token.text}`")
            if self._accept(")"):
                return tuple(result)
            self._expect(",", "between parameters")

    def _body(self, function: Function) -> None:
        while True:
            token = self._token
            if token.kind == "end":
                raise self._fail(f"the text ends inside the body of {function.name}")
            if self._accept("{"):
                self._scopes += 1
                self._scope = Scope(self._scopes, self._scope)
                if len(self._scope.chain()) > _MAX_DEPTH:
                    raise self._fail(f"more than {_MAX_DEPTH} nested scopes", token)
            elif self._accept("}"):
                if self._scope.parent is None:
                    break
                self._scope = self._scope.parent
            else:
                self._statement(function)
        self._resolve(function)

    def _statement(self, function: Function) -> None:
        token = self._token
        if token.kind == "dot":
            if self._accept(".reg"):
                self._registers(function)
            elif token.text in _SPACES or token.text == ".extern":
                extern = self._accept(".extern")
                function.variables.extend(self._variables(extern))
            elif not self._skip_debug():
                raise self._fail(f"`{token.text}` starts no statement", token)
        elif self._accept(";"):
            return
        elif token.kind == "word" and self._peek().text == ":" and self._peek().kind == "punct":
            self._label(function)
        else:
            self._instruction(function)

    def _label(self, function: Function) -> None:
        token = self._next()
        self._next()
        key = self._scope.key(token.text)
        declare(self._scope, self._scope.labels, token.text, key, token, "label")
        if self._accept(".branchtargets") or self._accept(".calltargets"):
            names = [self._word("a target").text]
            while self._accept(","):
                names.append(self._word("a target").text)
            self._expect(";", "after the targets")
            function.branch_targets[key] = tuple(names)
        elif self._accept(".callprototype"):
            function.call_prototypes[key] = token.line
            self._skip_statement()
        else:
            function.body.append(Label(key, token.line))

    def _registers(self, function: Function) -> None:
        width = 1
        if self._token.text in (".v2", ".v4"):
            width = int(self._next().text[2:])
        type_name = self._type()
        while True:
            name = self._word("a register's name")
            if self._accept("<"):
                count = self._constant()
                self._expect(">", "after the number of registers")
                if count < 0:
                    raise self._fail(f"{name.text}<{count}>: the number of registers is not negative", name)
                self._scope.ranges[name.text] = (count, type_name)
            elif width > 1:
                self._scope.vectors[name.text] = (width, type_name)
            else:
                declare(self._scope, self._scope.registers, name.text, type_name, name, "register")
                function.registers[self._scope.key(name.text)] = type_name
            if self._accept(";"):
                return
            self._expect(",", "between registers")

    def _type(self) -> str:
        token = self._next()
        if token.kind != "dot" or token.text[1:] not in TYPES:
            raise self._fail(f"expected a type such as .b32, found `{token.text}`", token)
        return token.text[1:]

    # ---- variables ----------------------------------------------------------------------------------------------

    def _variables(self, extern: bool, parameter: bool = False) -> list[Variable]:
        space_token = self._next()
        space = _SPACES[space_token.text]
        align, type_name, vector = 0, "", 1
        while self._token.kind == "dot":
            token = self._next()
            text = token.text
            if text == ".align":
                align = self._constant()
                if align <= 0 or align & (align - 1) or align > 1 << 20:
                    raise self._fail(f".align takes a power of two up to 2^20, not {align}", token)
            elif text in (".v2", ".v4"):
                vector = int(text[2:])
            elif text[1:] in TYPES:
                type_name = text[1:]
            elif text in (".ptr", ".global", ".shared", ".const", ".local", ".generic"):
                if text == ".ptr" and not parameter:
                    raise self._fail(".ptr stands only on parameters", token)
            elif text == ".attribute":
                self._expect("(", "after .attribute")
                while not self._accept(")"):
                    if self._token.kind == "end":
                        raise self._fail("the text ends inside .attribute")
                    self._next()
            else:
                raise self._fail(f"`{text}` does not belong into the declaration of a variable", token)
        if not type_name:
            raise self._fail(f"this {space_token.text} variable has no type")
        result = [self._variable(space, align, type_name, vector, extern)]
        if parameter:
            return result
        while self._accept(","):
            result.append(self._variable(space, align, type_name, vector, extern))
        self._expect(";", "after the variable")
        return result

    def _variable(self, space: str, align: int, type_name: str, vector: int, extern: bool) -> Variable:
        name = self._word("the name of the variable")
        element = max(1, TYPES[type_name].bits // 8)
        count, open_ended, numbered = vector, False, 1
        if self._accept("<"):
            numbered = self._constant()
            self._expect(">", "after the number of variables")
        while self._accept("["):
            if self._accept("]"):
                open_ended = True
                continue
            count *= self._constant()
            self._expect("]", "after the number of elements")
        if count < 0 or count * element > _MAX_VARIABLE_BYTES:
            raise self._fail(f"{name.text} has an impossible size of {count * element} bytes", name)
        elements: tuple[tuple[int, int, int | SymbolOperand], ...] = ()
        size = 0 if open_ended else count * element
        if self._accept("="):
            elements = self._initialiser(type_name, element)
            needed = max((offset + width for offset, width, _ in elements), default=0)
            if open_ended:
                size = needed
            elif needed > size:
                raise self._fail(f"{name.text} has {size} bytes but {needed} bytes of initial values", name)
        key = self._scope.key(name.text)
        variable = Variable(
            name.text, space, align or element * vector, size, type_name, extern or (open_ended and not elements),
            elements, name.line, key,
        )  # fmt: skip
        if numbered == 1:
            declare(self._scope, self._scope.variables, name.text, key, name, "variable")
            return variable
        raise self._fail(f"{name.text}<{numbered}>: numbered variables are not PTX for memory", name)

    def _initialiser(self, type_name: str, element: int) -> tuple[tuple[int, int, int | SymbolOperand], ...]:
        if not self._is("{"):
            return ((0, element, self._initial(type_name, element)),)
        values: list[tuple[int, int, int | SymbolOperand]] = []
        depth, offset = 0, 0
        while True:
            if self._accept("{"):
                depth += 1
            elif self._accept("}"):
                depth -= 1
                if depth == 0:
                    return tuple(values)
            elif self._accept(","):
                continue
            else:
                values.append((offset, element, self._initial(type_name, element)))
                offset += element

    def _initial(self, type_name: str, element: int) -> int | SymbolOperand:
        token = self._token
        negative = token.text == "-" and self._peek().kind == "float"
        if negative:
            self._next()
            token = self._token
        if token.kind == "float":
            self._next()
            return float_pattern(token.bits, TYPES[type_name].bits, negative)
        if token.kind == "word":
            return self._initial_symbol()
        return self._constant() & ((1 << (8 * element)) - 1)

    def _initial_symbol(self) -> SymbolOperand:
        name = self._next()
        if name.text == "generic" and self._accept("("):
            inner = self._word("a variable")
            self._expect(")", "after the variable")
            name = inner
        offset = 0
        if self._is("+") or self._is("-"):
            sign = -1 if self._next().text == "-" else 1
            offset = sign * self._constant()
        return SymbolOperand(name.text, offset)

    # ---- instructions -------------------------------------------------------------------------------------------

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
        if opcode.text[0] in "%$" and opcode.text[0] == "%":
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
        if register is not None:
            return register
        if name.startswith("%") or name == "WARP_SZ":
            if adjacent:
                name += self._next().text
            if not is_special(name):
                raise self._fail(f"register {name} is not declared", token)
            return IntegerOperand(32) if name == "WARP_SZ" else SpecialOperand(name)
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
        if not -(1 << 63) <= offset < 1 << 64:
            raise self._fail(f"the offset {offset} does not fit into 64 bits")
        return AddressOperand(base, offset, coordinates)

    # ---- constant expressions -----------------------------------------------------------------------------------

    def _constant(self, level: int = 0, depth: int = 0) -> int:
        """The value of a constant integer expression."""
        if depth > _MAX_DEPTH:
            raise self._fail("this constant expression is nested too deeply")
        if level == len(_OPERATORS):
            return self._constant_atom(depth)
        value = self._constant(level + 1, depth)
        while self._token.kind == "punct" and self._token.text in _OPERATORS[level]:
            operator = self._next()
            right = self._constant(level + 1, depth)
            value = self._apply(operator, value, right)
            if not -(1 << 64) < value < 1 << 64:
                value &= (1 << 64) - 1
        return value

    def _apply(self, operator: Token, left: int, right: int) -> int:
        text = operator.text
        if text in ("/", "%"):
            if right == 0:
                raise self._fail("division by zero in a constant expression", operator)
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if text == "/" else left - quotient * right
        if text in ("<<", ">>"):
            if not 0 <= right < 64:
                raise self._fail(f"a shift by {right} in a constant expression", operator)
            return left << right if text == "<<" else left >> right
        results = {"|": left | right, "^": left ^ right, "&": left & right, "+": left + right, "-": left - right}
        return results[text] if text in results else left * right

    def _constant_atom(self, depth: int) -> int:
        negative = inverted = False
        steps = 0
        while self._token.text in ("-", "+", "~") and self._token.kind == "punct":
            sign = self._next().text
            steps += 1
            if sign == "-":
                negative = not negative
            elif sign == "~":
                inner = ~self._constant_atom(depth + 1) if depth < _MAX_DEPTH else 0
                return -inner if negative else inner
        token = self._next()
        if token.kind == "integer":
            value = token.bits[1]
        elif token.text == "(":
            value = self._constant(0, depth + 1)
            self._expect(")", "to close the parenthesis")
        elif token.text == "WARP_SZ":
            value = 32
        else:
            raise self._fail(f"expected a constant, found `{token.text}`", token)
        return -value if negative else value

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
        labels = {statement.key for statement in function.body if isinstance(statement, Label)}
        for statement in function.body:
            if not isinstance(statement, Instruction) or statement.opcode != "bra":
                continue
            target = statement.operands[0] if statement.operands else None
            if not isinstance(target, SymbolOperand) or target.name not in labels:
                name = target.name if isinstance(target, SymbolOperand) else "?"
                raise PtxSyntaxError(statement.line, statement.column, f"bra goes to {name}, which is no label here")


# Special registers: PTX ISA, "Special Registers".
_SPECIAL = frozenset(
    ["%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%clock", "%clock_hi", "%clock64",
     "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%dynamic_smem_size", "%total_smem_size",
     "%aggr_smem_size", "%is_explicit_cluster", "%cluster_ctarank", "%cluster_nctarank",
     "%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap",
     "%current_graph_exec"]
    + [f"%lanemask_{kind}" for kind in ("eq", "le", "lt", "ge", "gt")]
    + [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid",
                                      "cluster_nctaid") for axis in "xyzw"]
    + [f"%envreg{index}" for index in range(32)]
    + [f"%pm{index}" for index in range(8)]
)  # fmt: skip


def is_special(name: str) -> bool:
    """Whether `name` is a special register of PTX."""
    return name in _SPECIAL


def float_pattern(bits: tuple[int, int], target_bits: int, negative: bool = False) -> int:
    """The bits of a floating constant in a type of `target_bits` bits.

    Constants are 64-bit unless written as 0f; a 64-bit one is rounded to the narrower type.
    """
    width, pattern = bits
    if width == 32 and target_bits == 32:
        result = pattern
    else:
        source = "<f" if width == 32 else "<d"
        (value,) = struct.unpack(source, pattern.to_bytes(width // 8, "little"))
        if target_bits == 32:
            try:
                result = int.from_bytes(struct.pack("<f", value), "little")
            except OverflowError:
                result = 0xFF800000 if value < 0 else 0x7F800000
        elif target_bits == 16:
            try:
                result = int.from_bytes(struct.pack("<e", value), "little")
            except OverflowError:
                result = 0xFC00 if value < 0 else 0x7C00
        else:
            result = int.from_bytes(struct.pack("<d", value), "little")
    return result ^ (1 << (target_bits - 1)) if negative else result
