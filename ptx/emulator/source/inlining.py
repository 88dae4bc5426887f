"""Calls of device functions, by copying their bodies to the place of the call.

Each copy gets registers, labels and variables of its own; parameters in .param space are memory of the thread, and the
callee's names for them are other names for the caller's. Recursion has no such copy and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tinygpu.ptx.emulator.faults import PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Function,
    GroupOperand,
    Guard,
    Instruction,
    Label,
    Operand,
    PairOperand,
    RegisterOperand,
    Statement,
    SymbolOperand,
    Variable,
    VectorOperand,
)

MAX_STATEMENTS = 2_000_000
_MAX_DEPTH = 64


@dataclass(slots=True)
class FlatCode:
    """A kernel with all calls copied in.

    variables  of all functions, by unique key, with the space they live in
    """

    statements: list[Statement] = field(default_factory=list)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    copies: int = 0


@dataclass(frozen=True, slots=True)
class _Renaming:
    """How one copy of a function's body is renamed."""

    prefix: str
    aliases: dict[str, str]
    own: frozenset[str]
    shared: dict[str, str]

    def register(self, register: RegisterOperand) -> RegisterOperand:
        return replace(register, key=self.prefix + register.key)

    def symbol(self, name: str) -> str:
        if name in self.aliases:
            return self.aliases[name]
        if name in self.shared:
            return self.shared[name]
        return self.prefix + name if name in self.own else name

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, RegisterOperand):
            return self.register(operand)
        if isinstance(operand, SymbolOperand):
            return replace(operand, name=self.symbol(operand.name))
        if isinstance(operand, AddressOperand):
            base = operand.base
            if isinstance(base, RegisterOperand):
                base = self.register(base)
            elif isinstance(base, SymbolOperand):
                base = replace(base, name=self.symbol(base.name))
            return replace(operand, base=base, coordinates=tuple(self.operand(o) for o in operand.coordinates))
        if isinstance(operand, VectorOperand):
            return VectorOperand(tuple(self.operand(o) for o in operand.elements))
        if isinstance(operand, GroupOperand):
            return GroupOperand(tuple(self.operand(o) for o in operand.elements))
        if isinstance(operand, PairOperand):
            return PairOperand(self.operand(operand.first), self.operand(operand.second))
        return operand


def flatten(entry: Function, functions: dict[str, Function]) -> FlatCode:
    """The entry's statements with every call copied in."""
    code = FlatCode()
    _copy(entry, functions, code, "", {}, (entry.name,))
    return code


def _copy(
    function: Function, functions: dict[str, Function], code: FlatCode, prefix: str, aliases: dict[str, str],
    stack: tuple[str, ...],
) -> None:  # fmt: skip
    own = {v.key for v in function.variables} | {s.key for s in function.body if isinstance(s, Label)}
    own |= set(function.branch_targets) | set(function.call_prototypes)
    # Shared and global variables of a function exist once, however often it is called.
    static = {v.key: f"{function.name}:{v.key}" for v in function.variables if v.space in ("shared", "global", "const")}
    renaming = _Renaming(prefix, aliases, frozenset(own), {} if not prefix and function.is_entry else static)
    for variable in function.variables:
        key = renaming.symbol(variable.key)
        if all(v.key != key for v in code.variables):
            code.variables.append(replace(variable, key=key))
    for key, names in function.branch_targets.items():
        code.branch_targets[renaming.symbol(key)] = tuple(renaming.symbol(name) for name in names)
    end = f"{prefix}%return"
    for statement in function.body:
        if len(code.statements) > MAX_STATEMENTS:
            raise UnsupportedInstruction(function.line, function.name, "the calls grow beyond two million instructions")
        if isinstance(statement, Label):
            code.statements.append(Label(renaming.symbol(statement.key), statement.line))
            continue
        guard = statement.guard
        if guard is not None:
            guard = Guard(renaming.register(guard.register), guard.negated)
        operands = tuple(renaming.operand(operand) for operand in statement.operands)
        renamed = replace(statement, guard=guard, operands=operands)
        if statement.opcode == "call":
            _call(renamed, functions, code, stack)
        elif statement.opcode == "ret" and not function.is_entry:
            code.statements.append(replace(renamed, opcode="bra", modifiers=(), operands=(SymbolOperand(end),)))
        else:
            code.statements.append(renamed)
    if not function.is_entry:
        code.statements.append(Label(end, function.line))


def _call(call: Instruction, functions: dict[str, Function], code: FlatCode, stack: tuple[str, ...]) -> None:
    operands = list(call.operands)
    results: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], GroupOperand):
        results = operands.pop(0).elements  # type: ignore[union-attr]
    target = operands[0] if operands else None
    arguments: tuple[Operand, ...] = ()
    if len(operands) > 1 and isinstance(operands[1], GroupOperand):
        arguments = operands[1].elements
    if not isinstance(target, SymbolOperand):
        raise UnsupportedInstruction(call.line, call.name, "a call through a register")
    function = functions.get(target.name)
    if function is None:
        raise PtxSyntaxError(call.line, call.column, f"the function {target.name} is not declared")
    skip = f"%call{code.copies}%skip"
    prefix = f"%call{code.copies}%"
    code.copies += 1
    if call.guard is not None:
        around = Guard(call.guard.register, not call.guard.negated)
        code.statements.append(
            Instruction("bra", (), (), (SymbolOperand(skip),), around, call.line, call.column)
        )
    if not function.has_body:
        _extern_call(call, function, results, code)
    else:
        if function.name in stack:
            raise UnsupportedInstruction(call.line, call.name, f"{function.name} calls itself")
        if len(stack) > _MAX_DEPTH:
            raise UnsupportedInstruction(call.line, call.name, f"calls are nested more than {_MAX_DEPTH} deep")
        aliases = _bind(call, function, results, arguments, code, prefix)
        _copy(function, functions, code, prefix, aliases, (*stack, function.name))
        for formal, actual in zip(function.returns, results, strict=True):
            if formal.space == "reg":
                source = RegisterOperand(formal.name, prefix + formal.key, formal.type_name)
                code.statements.append(_move(call, actual, source, formal.type_name))
    if call.guard is not None:
        code.statements.append(Label(skip, call.line))


def _bind(
    call: Instruction, function: Function, results: tuple[Operand, ...], arguments: tuple[Operand, ...],
    code: FlatCode, prefix: str,
) -> dict[str, str]:  # fmt: skip
    """Other names for memory parameters; moves for register parameters."""
    if len(arguments) != len(function.parameters) or len(results) != len(function.returns):
        raise PtxSyntaxError(
            call.line, call.column,
            f"{function.name} takes {len(function.parameters)} arguments and gives {len(function.returns)} results, "
            f"not {len(arguments)} and {len(results)}",
        )  # fmt: skip
    aliases: dict[str, str] = {}
    for formal, actual in zip((*function.parameters, *function.returns), (*arguments, *results), strict=True):
        if formal.space == "reg":
            if formal in function.parameters:
                target = RegisterOperand(formal.name, prefix + formal.key, formal.type_name)
                code.statements.append(_move(call, target, actual, formal.type_name))
        elif isinstance(actual, SymbolOperand):
            aliases[formal.key] = actual.name
        else:
            key = prefix + formal.key
            code.variables.append(replace(formal, key=key, space="param"))
            aliases[formal.key] = key
            place = AddressOperand(SymbolOperand(key), 0)
            name = formal.type_name
            code.statements.append(
                Instruction("st", ("param", name), (name,), (place, actual), None, call.line, call.column)
            )
    return aliases


def _move(call: Instruction, target: Operand, source: Operand, type_name: str) -> Instruction:
    return Instruction("mov", (type_name,), (type_name,), (target, source), None, call.line, call.column)


def _extern_call(call: Instruction, function: Function, results: tuple[Operand, ...], code: FlatCode) -> None:
    """The functions that every CUDA system supplies."""
    if function.name in ("__assertfail", "__assert_fail"):
        code.statements.append(Instruction("trap", (), (), (), None, call.line, call.column))
    elif function.name == "vprintf":
        for result in results:
            if isinstance(result, SymbolOperand):
                place = AddressOperand(SymbolOperand(result.name), 0)
                code.statements.append(
                    Instruction("st", ("param", "b32"), ("b32",), (place, _zero()), None, call.line, call.column)
                )
    else:
        raise UnsupportedInstruction(call.line, call.name, f"{function.name} has no body")


def _zero() -> Operand:
    from tinygpu.ptx.emulator.source.syntax import IntegerOperand

    return IntegerOperand(0)
