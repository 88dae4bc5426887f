"""PTX text to a syntax tree. Malformed text raises PtxSyntaxError; nothing here knows what an instruction does."""

from __future__ import annotations

from tinygpu.ptx.emulator.faults import UnsupportedInstruction
from tinygpu.ptx.emulator.source.cursor import MAX_DEPTH
from tinygpu.ptx.emulator.source.scopes import Scope, declare
from tinygpu.ptx.emulator.source.syntax import Function, Label, Module
from tinygpu.ptx.emulator.source.variable_parser import SPACES, VariableParser

_LINKING = (".extern", ".visible", ".weak", ".common")
_NUMBER_DIRECTIVES = (
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank",
    ".abi_preserve", ".abi_preserve_control",
)  # fmt: skip
_FLAG_DIRECTIVES = (".explicitcluster", ".blocksareclusters", ".noreturn", ".unique")
# Rules of PTX on the sizes of register ranges are loose; more than this no compiler emits.
_MOST_REGISTERS = 1 << 32


def parse(text: str, first_line: int = 1) -> Module:
    """The syntax tree of one PTX module; its lines are counted from `first_line`."""
    return _Parser(text, first_line).module()


class _Parser(VariableParser):
    def __init__(self, text: str, first_line: int) -> None:
        super().__init__(text, first_line)
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
        if len(major) > 3 or len(minor) > 3:
            raise self._fail(f"expected a version such as 8.0, found `{token.text[:20]}...`", token)
        version = (int(major), int(minor or "0"))
        self._expect(".target", "after .version")
        target = self._word("a target such as sm_80").text
        while self._accept(","):
            self._word("a target option")
        module = Module(version, target, 64, [], [], self._lines)
        module_scope = Scope(0, None)
        while self._token.kind != "end":
            self._module_item(module, module_scope)
        return module

    def _module_item(self, module: Module, module_scope: Scope) -> None:
        if self._accept(".address_size"):
            size = self._next()
            if size.kind != "integer" or size.bits[1] not in (32, 64):
                raise self._fail(f".address_size is 32 or 64, not `{size.text}`", size)
            if size.bits[1] == 32:
                raise UnsupportedInstruction(size.line, ".address_size 32", "addresses have 64 bits here")
            return
        if self._skip_debug():
            return
        linkage = ""
        while self._token.text in _LINKING:
            linkage = self._next().text[1:]
        if self._is(".entry") or self._is(".func"):
            module.functions.append(self._parse_function(self._next().text == ".entry", linkage))
        elif self._token.text in SPACES:
            self._scope = module_scope
            # A declaration without a definition may be repeated, and a definition may follow it.
            if linkage == "extern":
                self._scope = Scope(0, None)
            module.variables.extend(self._variables(linkage))
        elif self._accept(".alias"):
            alias = self._word("the other name of a function").text
            self._expect(",", "after the first name")
            module.aliases[alias] = self._word("the name of a function").text
            self._expect(";", "after .alias")
        elif not linkage and self._accept(";"):
            return
        else:
            raise self._fail(f"`{self._token.text}` starts no declaration of a PTX module")

    def _skip_debug(self) -> bool:
        """Skip .file, .loc, .pragma and .section: they change nothing of what runs."""
        text = self._token.text
        if not text.startswith("."):
            return False
        if text == ".pragma":
            while not self._accept(";"):
                if self._ended:
                    raise self._fail("the text ends inside a statement")
                self._next()
            return True
        if text == ".file":
            self._next()
            self._constant()
            if self._token.kind != "string":
                raise self._fail(f"expected a file's name, found `{self._token.text}`")
            self._next()
            while self._accept(","):
                self._constant()
            return True
        if text == ".loc":
            self._location()
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

    def _location(self) -> None:
        """.loc file line column{, function_name label{+offset}, inlined_at file line column}."""
        self._next()
        for _ in range(3):
            self._constant()
        while self._accept(","):
            word = self._word("function_name or inlined_at").text
            if word == "function_name":
                self._word("a label")
                if self._accept("+"):
                    self._constant()
            elif word == "inlined_at":
                for _ in range(3):
                    self._constant()
            else:
                raise self._fail(f"`{word}` does not belong into .loc")

    # ---- functions ----------------------------------------------------------------------------------------------

    def _parse_function(self, is_entry: bool, linkage: str) -> Function:
        self._scope = Scope(0, None)
        self._scopes = 0
        self._pending = []
        self._target_lists = []
        line = self._token.line
        function = Function("", is_entry, (), (), line, linkage=linkage)
        if not is_entry and self._is("("):
            function.returns = self._parameters(function)
        function.name = self._word("the name of the function").text
        if self._is("("):
            function.parameters = self._parameters(function)
        for parameter in (*function.parameters, *function.returns):
            if parameter.space == "reg":
                function.registers[parameter.key] = parameter.type_name
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
                if len(numbers) > 3 or not all(0 < number < 1 << 31 for number in numbers):
                    raise self._fail(f"{token.text} takes one to three positive integers", token)
                function.directives[token.text[1:]] = tuple(numbers)
            elif token.text == ".attribute":
                self._next()
                self._skip_attribute()
            elif not self._skip_debug():
                raise self._fail(f"`{token.text}` is no directive of a function", token)

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
            elif token.text in SPACES or token.text == ".extern":
                linkage = "extern" if self._accept(".extern") else ""
                if self._token.text not in SPACES:
                    raise self._fail(f"expected a state space after .extern, found `{self._token.text}`")
                function.variables.extend(self._variables(linkage))
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
            function.call_prototypes[key] = self._prototype(token.line)
        else:
            function.body.append(Label(key, token.line))

    def _registers(self, function: Function) -> None:
        width = 1
        if self._token.text in (".v2", ".v4"):
            width = int(self._next().text[2:])
        type_token = self._token
        type_name = self._type()
        if width > 1 and type_name == "b128":
            raise self._fail("vector registers have elements of at most 64 bits", type_token)
        scope = self._scope
        while True:
            name = self._word("a register's name")
            if self._accept("<"):
                count = self._constant()
                self._expect(">", "after the number of registers")
                if not 0 <= count <= _MOST_REGISTERS:
                    raise self._fail(f"{name.text}<{count}>: the number of registers is 0 to {_MOST_REGISTERS}", name)
                if name.text in scope.ranges:
                    raise self._fail(f"register {name.text}<{count}> is declared twice in the same scope", name)
                scope.ranges[name.text] = (count, type_name)
                scope.found.clear()
            elif width > 1:
                if name.text in scope.vectors:
                    raise self._fail(f"register {name.text} is declared twice in the same scope", name)
                scope.vectors[name.text] = (width, type_name)
                scope.found.clear()
            else:
                declare(scope, scope.registers, name.text, type_name, name, "register")
                function.registers[scope.key(name.text)] = type_name
            if self._accept(";"):
                return
            self._expect(",", "between registers")
