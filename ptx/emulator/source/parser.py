"""PTX text to a syntax tree. Malformed text raises PtxSyntaxError; nothing here knows what an instruction does."""

from __future__ import annotations

from tinygpu.ptx.emulator.source.cursor import MAX_DEPTH
from tinygpu.ptx.emulator.source.instruction_parser import InstructionParser
from tinygpu.ptx.emulator.source.literals import float_pattern
from tinygpu.ptx.emulator.source.scopes import Scope, declare
from tinygpu.ptx.emulator.source.syntax import Function, Label, Module, SymbolOperand, Variable
from tinygpu.ptx.emulator.source.types import TYPES

_LINKING = (".extern", ".visible", ".weak", ".common")
_SPACES = {".global": "global", ".shared": "shared", ".const": "const", ".local": "local", ".param": "param"}
_NUMBER_DIRECTIVES = (
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank",
    ".abi_preserve", ".abi_preserve_control",
)  # fmt: skip
_FLAG_DIRECTIVES = (".explicitcluster", ".blocksareclusters", ".noreturn")
_MAX_VARIABLE_BYTES = 1 << 40


def parse(text: str) -> Module:
    """The syntax tree of one PTX module."""
    return _Parser(text).module()


class _Parser(InstructionParser):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._lines = tuple(text.split("\n"))
        self._scopes = 0

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
            if self._ended:
                raise self._fail("the text ends inside a statement")
            self._next()
        self._next()

    def _skip_debug(self) -> bool:
        """Skip .file, .loc, .pragma and .section: they change nothing of what runs."""
        text = self._token.text
        if not text.startswith("."):
            return False
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
                if self._ended:
                    raise self._fail("the text ends inside a section")
                self._next()
            return True
        return False

    # ---- functions ----------------------------------------------------------------------------------------------

    def _parse_function(self, is_entry: bool) -> Function:
        self._scope = Scope(0, None)
        self._scopes = 0
        self._pending = []
        self._target_lists = []
        line = self._token.line
        function = Function("", is_entry, (), (), line)
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
                    if self._ended:
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
                if len(self._scope.chain()) > MAX_DEPTH:
                    raise self._fail(f"more than {MAX_DEPTH} nested scopes", token)
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
                if self._token.text not in _SPACES:
                    raise self._fail(f"expected a state space after .extern, found `{self._token.text}`")
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
            self._target_lists.append((key, self._scope))
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
                    if self._ended:
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
