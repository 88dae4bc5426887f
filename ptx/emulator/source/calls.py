"""Who calls whom: which functions are copied into their callers, and which stay functions with a frame of their own.

A function is copied to the place of each call. It stays a function where copies cannot do: when it is recursive, when
it is called through a register, and when copies would make the kernel too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.control_flow import components
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Function,
    GroupOperand,
    Instruction,
    Module,
    Operand,
    RegisterOperand,
    SymbolOperand,
    Variable,
    VectorOperand,
)

# Where functions lie: an address space of their own, which holds no data. The first address is no function's.
CODE_BASE = 0x0000_6000_0000_0000
CODE_STEP = 16
# Statements that the copies of one function may come to.
_MOST_COPIED = 20_000
_CALL_STATEMENTS = 12
# What the system supplies to device code, and how many parameters and results each takes.
SYSTEM_FUNCTIONS: dict[str, tuple[int, int]] = {
    "vprintf": (2, 1), "__assertfail": (5, 0), "__assert_fail": (5, 0), "malloc": (1, 1), "free": (1, 0),
    "__trap": (0, 0),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallParts:
    """The operands of a call: (results), target, (arguments), list of targets or prototype."""

    results: tuple[Operand, ...]
    target: Operand
    arguments: tuple[Operand, ...]
    label: str


def call_parts(call: Instruction) -> CallParts:
    """The operands of a call, told apart."""
    operands = list(call.operands)
    results: tuple[Operand, ...] = ()
    arguments: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], GroupOperand):
        results = operands[0].elements
        operands.pop(0)
    if not operands or not isinstance(operands[0], (SymbolOperand, RegisterOperand)):
        raise PtxSyntaxError(call.line, call.column, f"`{call.name}` names no function")
    target = operands.pop(0)
    if operands and isinstance(operands[0], GroupOperand):
        arguments = operands[0].elements
        operands.pop(0)
    label = ""
    if operands and isinstance(operands[0], SymbolOperand):
        label = operands[0].name
        operands.pop(0)
    if operands:
        raise PtxSyntaxError(call.line, call.column, f"`{call.name}` takes results, a function and arguments only")
    return CallParts(results, target, arguments, label)


def is_call(statement: object) -> bool:
    """Whether a statement is a call."""
    return isinstance(statement, Instruction) and statement.opcode == "call"


Signature = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
"""(size, alignment) of each parameter and of each result."""


def signature(parameters: Iterable[Variable], returns: Iterable[Variable]) -> Signature:
    """What two functions must share to be called through the same register."""
    return (
        tuple((max(v.size_bytes, 1), v.align_bytes) for v in parameters),
        tuple((max(v.size_bytes, 1), v.align_bytes) for v in returns),
    )


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How the calls of a kernel are carried out.

    functions  by name, aliases too; those with a body before mere declarations
    addresses  of every function whose address is taken somewhere
    called     functions that stay functions for direct calls: recursive ones, and those with too many copies
    recursive  functions of which several activations may live at once
    """

    functions: dict[str, Function]
    addresses: dict[str, int]
    called: frozenset[str]
    recursive: frozenset[str]

    def targets(self, caller: Function, call: Instruction, parts: CallParts) -> tuple[str, ...]:
        """The functions that a call through a register may reach."""
        listed = caller.branch_targets.get(parts.label)
        if listed is not None:
            return listed_targets(self.functions, listed, call)
        prototype = caller.call_prototypes.get(parts.label)
        if prototype is None:
            raise PtxSyntaxError(
                call.line, call.column, f"`{call.name}` through a register names no .callprototype or .calltargets"
            )
        wanted = signature(prototype.parameters, prototype.returns)
        return compatible(self.functions, self.addresses, wanted)


def listed_targets(functions: dict[str, Function], names: tuple[str, ...], call: Instruction) -> tuple[str, ...]:
    """The functions of a .calltargets list."""
    for name in names:
        if name not in functions or not functions[name].has_body:
            raise PtxSyntaxError(call.line, call.column, f".calltargets lists {name}, which is no function with a body")
    return tuple(dict.fromkeys(functions[name].name for name in names))


def compatible(functions: dict[str, Function], addresses: Iterable[str], wanted: Signature) -> tuple[str, ...]:
    """Functions whose address is taken and that have this signature."""
    return tuple(
        name for name in addresses
        if functions[name].has_body and signature(functions[name].parameters, functions[name].returns) == wanted
    )  # fmt: skip


def functions_by_name(module: Module) -> dict[str, Function]:
    """All functions, aliases too; a definition goes before a declaration."""
    result: dict[str, Function] = {}
    for function in module.functions:
        if function.has_body or function.name not in result:
            result[function.name] = function
    for alias, name in module.aliases.items():
        if name in result:
            result.setdefault(alias, result[name])
            if not result[alias].has_body:
                result[alias] = result[name]
    return result


def plan_calls(entry: Function, module: Module) -> CallPlan:
    """Decide for every function that the entry may reach."""
    functions = functions_by_name(module)
    addresses: dict[str, int] = {}
    for variable in module.variables:
        _note_addresses((value for _, _, value in variable.elements), functions, addresses)
    edges: dict[str, list[str]] = {}
    sites: dict[str, int] = {}
    through: list[tuple[str, Instruction, CallParts]] = []
    # Which addresses are taken decides what a call through a register reaches, and the other way round: repeat.
    pending = [entry.name]
    while True:
        while pending:
            name = pending.pop()
            if name in edges:
                continue
            function = functions[name]
            edges[name] = []
            for statement in function.body:
                if not isinstance(statement, Instruction):
                    continue
                _note_addresses(_values(statement), functions, addresses, function)
                if statement.opcode != "call":
                    continue
                parts = call_parts(statement)
                if not isinstance(parts.target, SymbolOperand):
                    through.append((name, statement, parts))
                    continue
                callee = _callee(functions, statement, parts.target.name)
                if callee.has_body:
                    edges[name].append(callee.name)
                    sites[callee.name] = sites.get(callee.name, 0) + 1
                    pending.append(callee.name)
        plan = CallPlan(functions, addresses, frozenset(), frozenset())
        for name, call, parts in through:
            for target in plan.targets(functions[name], call, parts):
                if target not in edges[name]:
                    edges[name].append(target)
                pending.append(target)
        pending = [name for name in pending if name not in edges]
        if not pending:
            break
    recursive, order = _recursive(edges, entry.name)
    if entry.name in recursive:
        raise PtxSyntaxError(entry.line, 1, f"the entry {entry.name} is called like a function")
    return CallPlan(functions, addresses, recursive | _too_long(functions, edges, sites, recursive, order), recursive)


def _callee(functions: dict[str, Function], call: Instruction, name: str) -> Function:
    callee = functions.get(name)
    if callee is None:
        raise PtxSyntaxError(call.line, call.column, f"the function {name} is not declared")
    if callee.is_entry:
        raise PtxSyntaxError(call.line, call.column, f"{name} is an entry, which cannot be called")
    return callee


def _values(instruction: Instruction) -> Iterator[object]:
    """Operands whose value an instruction takes (not the function that a call names)."""
    if instruction.opcode == "call":
        for operand in instruction.operands:
            if isinstance(operand, GroupOperand):
                yield from operand.elements
        return
    for operand in instruction.operands:
        if isinstance(operand, VectorOperand):
            yield from operand.elements
        elif isinstance(operand, AddressOperand):
            yield operand.base
        else:
            yield operand


def _note_addresses(
    values: Iterable[object], functions: dict[str, Function], addresses: dict[str, int], inside: Function | None = None
) -> None:
    for value in values:
        if not isinstance(value, SymbolOperand) or value.name not in functions:
            continue
        if inside is not None and any(v.key == value.name for v in (*inside.variables, *inside.parameters)):
            continue
        name = functions[value.name].name
        if name not in addresses:
            addresses[name] = CODE_BASE + CODE_STEP * (len(addresses) + 1)


def _recursive(edges: dict[str, list[str]], entry: str) -> tuple[frozenset[str], list[str]]:
    """(functions that may be active several times at once, all reachable functions with callees first)."""
    names = list(edges)
    number = {name: k for k, name in enumerate(names)}
    graph = [[number[target] for target in edges[name]] for name in names]
    recursive: set[str] = set()
    order: list[str] = []
    for component in components(graph, set(range(len(names))), number[entry]):
        if len(component) > 1 or component[0] in graph[component[0]]:
            recursive |= {names[k] for k in component}
        order.extend(names[k] for k in component)
    return frozenset(recursive), order[::-1]


def _too_long(
    functions: dict[str, Function], edges: dict[str, list[str]], sites: dict[str, int], recursive: frozenset[str],
    order: list[str],
) -> frozenset[str]:  # fmt: skip
    """Functions whose copies would be too many statements, callees decided before their callers."""
    length: dict[str, int] = {}
    chosen: set[str] = set()
    for name in order:
        total = len(functions[name].body)
        for statement in functions[name].body:
            if is_call(statement):
                parts = call_parts(statement)  # type: ignore[arg-type]
                total += _CALL_STATEMENTS
                if isinstance(parts.target, SymbolOperand):
                    callee = functions[parts.target.name].name
                    if callee not in chosen and callee not in recursive:
                        total += length.get(callee, 0)
        length[name] = total
        if sites.get(name, 0) > 1 and total * sites[name] > _MOST_COPIED:
            chosen.add(name)
    return frozenset(chosen)
