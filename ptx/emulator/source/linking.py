"""Several PTX modules as one: what they declare .extern, .visible, .weak and .common meets by name.

Names without linkage belong to their module alone; where two modules use the same such name, the later ones get
another. Lines are counted through all texts, and Module.place tells them apart again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinygpu.ptx.emulator.faults import LaunchError, PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.source.calls import signature
from tinygpu.ptx.emulator.source.parser import parse
from tinygpu.ptx.emulator.source.renaming import Renaming
from tinygpu.ptx.emulator.source.syntax import Function, Instruction, Module, SymbolOperand, Variable
from tinygpu.ptx.emulator.source.targets import check_targets


def read_modules(texts: Sequence[str]) -> Module:
    """Parse and link PTX texts. Raises PtxSyntaxError, UnsupportedInstruction, and LaunchError where they conflict."""
    if not texts:
        raise LaunchError("there is no PTX: pass the text of at least one module")
    modules: list[Module] = []
    starts: list[int] = []
    lines: list[str] = []
    for text in texts:
        if not isinstance(text, str):
            raise LaunchError(f"a PTX module is a text, not {type(text).__name__}")
        starts.append(len(lines))
        modules.append(_parse(text, len(starts) if len(texts) > 1 else 0, len(lines)))
        lines.extend(modules[-1].lines)
    return _link(modules, tuple(lines), tuple(starts))


def _parse(text: str, number: int, before: int) -> Module:
    try:
        module = parse(text, before + 1)
        check_targets(module)
        return module
    except PtxSyntaxError as error:
        raise PtxSyntaxError(error.line - before, error.column, error.sentence, number) from None
    except UnsupportedInstruction as error:
        raise UnsupportedInstruction(error.line - before, error.instruction, error.reason, number) from None


def in_its_module(
    error: PtxSyntaxError | UnsupportedInstruction, module: Module
) -> PtxSyntaxError | UnsupportedInstruction:
    """The same error with the line as its own text counts it."""
    if len(module.starts) == 1:
        return error
    number, line = module.place(error.line)
    if isinstance(error, PtxSyntaxError):
        return PtxSyntaxError(line, error.column, error.sentence, number)
    return UnsupportedInstruction(line, error.instruction, error.reason, number)


def _link(modules: list[Module], lines: tuple[str, ...], starts: tuple[int, ...]) -> Module:
    linked = Module(modules[0].version, modules[0].target, 64, [], [], lines, {}, starts)
    taken: set[str] = set()
    for number, module in enumerate(modules, 1):
        own = [v.name for v in module.variables if not v.linkage and not _is_dynamic(v)]
        own += [f.name for f in module.functions if not f.linkage and not f.is_entry]
        renamed = {name: f"{name}@{number}" for name in dict.fromkeys(own) if name in taken}
        taken.update(v.name for v in module.variables)
        taken.update(f.name for f in module.functions)
        linked.variables.extend(_rename_variable(v, renamed) for v in module.variables)
        linked.functions.extend(_rename_function(f, renamed) for f in module.functions)
        for alias, name in module.aliases.items():
            linked.aliases[alias] = renamed.get(name, name)
    linked.variables[:] = _resolve_variables(linked, linked.variables)
    linked.functions[:] = _resolve_functions(linked, linked.functions)
    return linked


def _is_dynamic(variable: Variable) -> bool:
    return variable.space == "shared" and variable.extern


# ---- private names ------------------------------------------------------------------------------------------------


def _rename_variable(variable: Variable, renamed: dict[str, str]) -> Variable:
    if not renamed:
        return variable
    name = renamed.get(variable.name, variable.name) if not variable.linkage else variable.name
    elements = tuple(
        (offset, size, replace(value, name=renamed.get(value.name, value.name)))
        if isinstance(value, SymbolOperand) else (offset, size, value)
        for offset, size, value in variable.elements
    )  # fmt: skip
    key = name if variable.key == variable.name else variable.key
    return replace(variable, name=name, key=key, elements=elements)


def _rename_function(function: Function, renamed: dict[str, str]) -> Function:
    if not renamed:
        return function
    inside = {v.key for v in (*function.variables, *function.parameters, *function.returns)}
    renaming = Renaming("", {old: new for old, new in renamed.items() if old not in inside}, frozenset(), {})
    body = [
        replace(s, operands=tuple(renaming.operand(o) for o in s.operands)) if isinstance(s, Instruction) else s
        for s in function.body
    ]
    lists = {key: tuple(renaming.symbol(name) for name in names) for key, names in function.branch_targets.items()}
    name = function.name
    if not function.linkage and not function.is_entry:
        name = renamed.get(name, name)
    return replace(function, name=name, body=body, branch_targets=lists)


# ---- names that meet ----------------------------------------------------------------------------------------------


def _conflict(module: Module, name: str, first: int, second: int, why: str) -> LaunchError | PtxSyntaxError:
    if len(module.starts) == 1:
        return PtxSyntaxError(second, 1, f"{name} is {why}, first on line {first}")
    places = [f"line {line} of module {number}" for number, line in (module.place(first), module.place(second))]
    return LaunchError(f"{name} is {why}: {places[0]} and {places[1]}")


def _resolve_variables(module: Module, variables: list[Variable]) -> list[Variable]:
    """One variable per name: a definition before a weak one, a weak one before .common, that before a declaration."""
    strength = {"extern": 0, "common": 1, "weak": 2, "visible": 3, "": 3}
    chosen: dict[str, Variable] = {}
    result: list[Variable] = []
    for variable in variables:
        if _is_dynamic(variable):
            result.append(variable)
            continue
        known = chosen.get(variable.name)
        if known is None:
            chosen[variable.name] = variable
            continue
        if known.space != variable.space:
            raise _conflict(
                module, variable.name, known.line, variable.line,
                f"declared in .{known.space} and in .{variable.space}",
            )  # fmt: skip
        first, second = strength[known.linkage], strength[variable.linkage]
        if first == second == 3:
            raise _conflict(module, variable.name, known.line, variable.line, "defined twice")
        sizes = {known.size_bytes, variable.size_bytes}
        if len(sizes) > 1 and 0 not in sizes and not (known.linkage == variable.linkage == "common"):
            raise _conflict(
                module, variable.name, known.line, variable.line,
                f"declared with {known.size_bytes} and with {variable.size_bytes} bytes",
            )  # fmt: skip
        if second > first or (second == first == 1 and variable.size_bytes > known.size_bytes):
            chosen[variable.name] = variable
    return [*chosen.values(), *result]


def _resolve_functions(module: Module, functions: list[Function]) -> list[Function]:
    """One function per name, whose declarations all agree with it."""
    chosen: dict[str, Function] = {}
    for function in functions:
        known = chosen.get(function.name)
        if known is None:
            chosen[function.name] = function
            continue
        if known.is_entry or function.is_entry:
            if known.has_body and function.has_body:
                raise _conflict(module, function.name, known.line, function.line, "defined twice")
        elif signature(known.parameters, known.returns) != signature(function.parameters, function.returns):
            raise _conflict(
                module, function.name, known.line, function.line, "declared with different parameters or results"
            )
        elif known.has_body and function.has_body and known.linkage != "weak" and function.linkage != "weak":
            raise _conflict(module, function.name, known.line, function.line, "defined twice")
        if (function.has_body, function.linkage != "weak") > (known.has_body, known.linkage != "weak"):
            chosen[function.name] = function
    return list(chosen.values())
