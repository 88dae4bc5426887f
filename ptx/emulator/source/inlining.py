"""A kernel and all that it calls as one flat list of statements.

A function is copied to the place of each call: each copy gets registers, labels and variables of its own; parameters in
.param space are memory of the thread, and the callee's names for them are other names for the caller's. Functions that
cannot be copied (see calls) get a body of their own, entered by a branch, with a frame in the thread's stack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tinygpu.ptx.emulator.faults import PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.source.bodies import Body, Call, finish
from tinygpu.ptx.emulator.source.calls import CallParts, CallPlan, call_parts, plan_calls
from tinygpu.ptx.emulator.source.frames import (
    FRAME,
    STACK_BYTES,
    Flow,
    Frame,
    frame_place,
    registers_of,
    save_and_restore,
    signature_offsets,
)
from tinygpu.ptx.emulator.source.outlining import (
    BAD_TARGET,
    Pieces,
    access_pieces,
    copy_memory,
    index_of_target,
    move,
    transfer,
)
from tinygpu.ptx.emulator.source.renaming import Renaming, in_frame
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Function,
    Guard,
    Instruction,
    IntegerOperand,
    Label,
    Module,
    Operand,
    RegisterOperand,
    Statement,
    SymbolOperand,
    TextOperand,
    Variable,
)
from tinygpu.ptx.emulator.source.system_calls import ALLOCATED, stack_instruction, system_call

MAX_STATEMENTS = 1_000_000
_MAX_DEPTH = 64


@dataclass(slots=True)
class FlatCode:
    """A kernel with all that it calls.

    variables  of all functions, by unique key, with the space they live in
    addresses  of functions, by name
    """

    statements: list[Statement] = field(default_factory=list)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    addresses: dict[str, int] = field(default_factory=dict)
    copies: int = 0


def flatten(entry: Function, module: Module) -> FlatCode:
    """The entry's statements with every call carried out. Raises PtxSyntaxError and UnsupportedInstruction."""
    return _Flattener(plan_calls(entry, module)).run(entry)


class _Flattener:
    def __init__(self, plan: CallPlan) -> None:
        self._plan = plan
        self._code = FlatCode(addresses=dict(plan.addresses))
        self._keys: set[str] = set()
        self._wanted: list[str] = []
        self._made: set[str] = set()
        # Where calls return to: (label, functions that may return there).
        self._sites: list[tuple[str, frozenset[str]]] = []
        self._count = 0
        self._allocates = False
        self._accesses: dict[tuple[str, str], dict[str, set[tuple[int, int]] | None]] = {}

    def run(self, entry: Function) -> FlatCode:
        body = Body(entry, None, False)
        self._copy(body, entry, "", {}, (entry.name,))
        statements = finish(body, self._code.branch_targets)
        while self._wanted:
            name = self._wanted.pop()
            if name not in self._made:
                self._made.add(name)
                statements.extend(self._outlined(self._plan.functions[name]))
        if self._sites:
            statements.append(Label(BAD_TARGET, entry.line))
            text = TextOperand("a call returns to a place that it did not come from")
            statements.append(Instruction("trap", (), (), (text,), None, entry.line, 1))
            for name in self._made:
                targets = tuple(label if name in callees else BAD_TARGET for label, callees in self._sites)
                self._code.branch_targets[f"%sites:{name}"] = targets
        start: list[Statement] = []
        # Stacks lie above all other local variables: what overflows hits nothing else.
        if self._allocates:
            start.append(self._stack(ALLOCATED, "the memory of alloca", entry.line))
        if self._sites:
            start.append(self._stack(FRAME, "the call stack", entry.line))
        self._code.statements = start + statements
        return self._code

    def _stack(self, register: RegisterOperand, name: str, line: int) -> Statement:
        variable = Variable(name, "local", 16, STACK_BYTES, "b8", False, (), line, name)
        self._code.variables.append(variable)
        return Instruction("mov", ("u64",), ("u64",), (register, SymbolOperand(variable.key)), None, line, 1)

    # ---- bodies -------------------------------------------------------------------------------------------------

    def _outlined(self, function: Function) -> list[Statement]:
        """A function of its own: parameters and results lie in its frame."""
        frame = Frame()
        prefix = f"%{function.name}%"
        body = Body(function, frame, function.name in self._plan.recursive)
        aliases: dict[str, str] = {}
        for formal in (*function.parameters, *function.returns):
            key = prefix + formal.key
            frame.place(key, formal.size_bytes, formal.align_bytes)
            if formal.space != "reg":
                aliases[formal.key] = key
        at = Instruction("call", (), (), (), None, function.line, 1)
        body.items.append(Label(f"%entry:{function.name}", function.line))
        for formal in function.parameters:
            if formal.space == "reg":
                register = RegisterOperand(formal.name, prefix + formal.key, formal.type_name)
                body.items.append(transfer("ld", register, frame_place(frame.offsets[prefix + formal.key]), at))
        self._copy(body, function, prefix, aliases, (function.name,))
        return finish(body, self._code.branch_targets)

    def _return(self, body: Body, prefix: str, at: Instruction) -> None:
        """Back to the caller: register results go into the frame."""
        frame = body.frame
        if frame is None:
            raise ValueError("an entry returns to nobody")
        for formal in body.function.returns:
            if formal.space == "reg":
                register = RegisterOperand(formal.name, prefix + formal.key, formal.type_name)
                self._add(body, transfer("st", register, frame_place(frame.offsets[prefix + formal.key]), at))
        site = RegisterOperand("the place to return to", "%site", "b32")
        self._add(body, transfer("ld", site, frame_place(0), at))
        sites = SymbolOperand(f"%sites:{body.function.name}")
        self._add(body, Instruction("brx", ("idx",), (), (site, sites), None, at.line, at.column))

    # ---- copying ------------------------------------------------------------------------------------------------

    def _add(self, body: Body, statement: Statement | Call) -> None:
        self._count += 1
        if self._count > MAX_STATEMENTS:
            raise UnsupportedInstruction(
                body.function.line, body.function.name, "with all that it calls it has more than a million instructions"
            )
        if isinstance(statement, Instruction) and body.frame is not None:
            body.items.extend(in_frame(statement, body.frame.offsets))
        else:
            body.items.append(statement)

    def _declare(self, body: Body, variable: Variable) -> None:
        """Enter a variable of a copy: into the frame where several activations may live at once."""
        if body.frame is not None and body.recursive and variable.space in ("local", "param"):
            body.frame.place(variable.key, variable.size_bytes, variable.align_bytes)
        elif variable.key not in self._keys:
            self._keys.add(variable.key)
            self._code.variables.append(variable)

    def _copy(
        self, body: Body, function: Function, prefix: str, aliases: dict[str, str], stack: tuple[str, ...]
    ) -> None:
        own = {v.key for v in function.variables} | {s.key for s in function.body if isinstance(s, Label)}
        own |= set(function.branch_targets) | set(function.call_prototypes)
        # Shared and global variables of a function exist once, however often it is called.
        static = {
            v.key: f"{function.name}:{v.key}" for v in function.variables if v.space in ("shared", "global", "const")
        }
        renaming = Renaming(prefix, aliases, frozenset(own), {} if function.is_entry else static)
        for variable in function.variables:
            self._declare(body, replace(variable, key=renaming.symbol(variable.key)))
        for key, names in function.branch_targets.items():
            self._code.branch_targets[renaming.symbol(key)] = tuple(renaming.symbol(name) for name in names)
        outermost = function is body.function and len(stack) == 1
        end = f"{prefix}%return"
        kept = RegisterOperand("the memory of alloca", f"{prefix}%allocated", "b64")
        allocates = any(isinstance(s, Instruction) and s.opcode == "alloca" for s in function.body)
        at = Instruction("ret", (), (), (), None, function.line, 1)
        if allocates and not function.is_entry:
            self._add(body, move(kept, ALLOCATED, "u64", at))
        for statement in function.body:
            if isinstance(statement, Label):
                self._add(body, Label(renaming.symbol(statement.key), statement.line))
                continue
            guard = statement.guard
            if guard is not None:
                guard = Guard(renaming.register(guard.register), guard.negated)
            if statement.opcode == "call":
                self._call(body, function, renaming, replace(statement, guard=guard), stack)
                continue
            renamed = statement
            if not function.is_entry:
                operands = tuple(renaming.operand(operand) for operand in statement.operands)
                renamed = replace(statement, guard=guard, operands=operands)
            if statement.opcode == "ret" and not function.is_entry:
                self._add(body, replace(renamed, opcode="bra", modifiers=(), operands=(SymbolOperand(end),)))
            elif statement.opcode in ("alloca", "stacksave", "stackrestore"):
                self._allocates = True
                for made in stack_instruction(renamed):
                    self._add(body, made)
            else:
                self._add(body, renamed)
        if function.is_entry:
            return
        self._add(body, Label(end, function.line))
        if allocates:
            self._add(body, move(ALLOCATED, kept, "u64", at))
        if outermost:
            self._return(body, prefix, at)

    def _call(
        self, body: Body, caller: Function, renaming: Renaming, call: Instruction, stack: tuple[str, ...]
    ) -> None:
        parts = call_parts(call)
        number = self._code.copies
        self._code.copies += 1
        skip = f"%call{number}%skip"
        if call.guard is not None:
            around = Guard(call.guard.register, not call.guard.negated)
            self._add(
                body, Instruction("bra", (), (), (SymbolOperand(skip),), around, call.line, call.column)
            )
        label = call.guard is not None
        call = replace(call, guard=None)
        results = tuple(renaming.operand(operand) for operand in parts.results)
        arguments = tuple(renaming.operand(operand) for operand in parts.arguments)
        target = parts.target
        if isinstance(target, SymbolOperand):
            function = self._plan.functions[target.name]
            if not function.has_body:
                for made in system_call(call, function, results, arguments):
                    self._add(body, made)
            elif function.name in self._plan.called or len(stack) > _MAX_DEPTH:
                self._jump(body, call, caller, parts, (function.name,), None, results, arguments)
            else:
                self._inline(body, call, function, f"%call{number}%", results, arguments, stack)
        elif isinstance(target, RegisterOperand):
            targets = self._plan.targets(caller, call, parts)
            self._jump(body, call, caller, parts, targets, renaming.register(target), results, arguments)
        if label:
            self._add(body, Label(skip, call.line))

    # ---- a copy -------------------------------------------------------------------------------------------------

    def _inline(
        self, body: Body, call: Instruction, function: Function, prefix: str, results: tuple[Operand, ...],
        arguments: tuple[Operand, ...], stack: tuple[str, ...],
    ) -> None:  # fmt: skip
        """Other names for memory parameters, moves for register parameters, and the body."""
        _check_counts(call, function, results, arguments)
        aliases: dict[str, str] = {}
        for k, (formal, actual) in enumerate(
            zip((*function.parameters, *function.returns), (*arguments, *results), strict=True)
        ):
            given = k < len(arguments)
            if formal.space == "reg":
                if given:
                    target = RegisterOperand(formal.name, prefix + formal.key, formal.type_name)
                    self._add(body, move(target, actual, formal.type_name, call))
            elif isinstance(actual, SymbolOperand) and not actual.offset:
                aliases[formal.key] = actual.name
            else:
                key = prefix + formal.key
                self._declare(body, replace(formal, key=key, space="param"))
                aliases[formal.key] = key
                if given:
                    place = AddressOperand(SymbolOperand(key), 0)
                    self._add(body, transfer("st", actual, place, call, formal.type_name))
        self._copy(body, function, prefix, aliases, (*stack, function.name))
        for formal, actual in zip(function.returns, results, strict=True):
            if formal.space == "reg":
                source = RegisterOperand(formal.name, prefix + formal.key, formal.type_name)
                self._add(body, move(actual, source, formal.type_name, call))
            elif not isinstance(actual, SymbolOperand):
                place = AddressOperand(SymbolOperand(prefix + formal.key), 0)
                self._add(body, transfer("ld", actual, place, call, formal.type_name))

    # ---- a real call --------------------------------------------------------------------------------------------

    def _jump(
        self, body: Body, call: Instruction, caller: Function, parts: CallParts, targets: tuple[str, ...],
        through: RegisterOperand | None, results: tuple[Operand, ...], arguments: tuple[Operand, ...],
    ) -> None:  # fmt: skip
        """A call of a function with a body of its own; `through` holds its address where the call names none."""
        functions = [self._plan.functions[name] for name in targets]
        if functions:
            parameters, returns = functions[0].parameters, functions[0].returns
            _check_counts(call, functions[0], results, arguments)
        else:
            prototype = caller.call_prototypes.get(parts.label)
            parameters, returns = (prototype.parameters, prototype.returns) if prototype is not None else ((), ())
        self._wanted.extend(targets)
        site = len(self._sites)
        back = f"%site{site}"
        self._sites.append((back, frozenset(targets)))
        into, out = signature_offsets(parameters, returns)
        given = [self._pieces(caller, operand, "st") for operand in parts.arguments]
        taken = [self._pieces(caller, operand, "ld") for operand in parts.results]
        jump: Callable[[], list[Statement]]
        if through is None:
            entry = SymbolOperand(f"%entry:{targets[0]}")
            jump = lambda: [Instruction("bra", (), (), (entry,), None, call.line, call.column)]  # noqa: E731
        else:
            self._code.branch_targets[f"%targets{site}"] = self._table(targets, f"%bad{site}")
            register = through
            jump = lambda: index_of_target(register, len(self._plan.addresses), site, call)  # noqa: E731
        offsets = body.frame.offsets if body.frame is not None else {}

        def make(extent: int, saved: list[RegisterOperand]) -> list[Statement]:
            before: list[Statement] = []
            after: list[Statement] = []
            for register in saved:
                place = body.frame.save(register) if body.frame is not None else 0
                save, restore = save_and_restore(register, place, call)
                before.extend(save)
                after.extend(restore)
            number = RegisterOperand("the place to return to", "%site", "b32")
            made = list(before)
            for formal, actual, offset, pieces in zip(parameters, arguments, into, given, strict=True):
                made.extend(copy_memory("st", actual, formal, extent + offset, pieces, call))
            made.append(move(number, IntegerOperand(site), "u32", call))
            made.append(transfer("st", number, frame_place(extent), call))
            made.append(_advance(extent, call))
            made.extend(jump())
            made.append(Label(back, call.line))
            made.append(_advance(-extent, call))
            made.extend(after)
            for formal, actual, offset, pieces in zip(returns, results, out, taken, strict=True):
                made.extend(copy_memory("ld", actual, formal, extent + offset, pieces, call))
            if not offsets:
                return made
            return [
                one for statement in made
                for one in ([statement] if isinstance(statement, Label) else in_frame(statement, offsets))
            ]  # fmt: skip

        reads = frozenset(registers_of((*arguments, through)))
        written = registers_of(results)
        body.registers.update(registers_of((*arguments, *results, through)))
        self._add(body, Call(Flow(reads, frozenset(written)), make))

    def _pieces(self, caller: Function, operand: Operand, opcode: str) -> Pieces | None:
        if not isinstance(operand, SymbolOperand) or operand.offset:
            return None
        known = self._accesses.get((caller.name, opcode))
        if known is None:
            known = self._accesses[caller.name, opcode] = access_pieces(caller, opcode)
        pieces = known.get(operand.name, set())
        return None if pieces is None else tuple(sorted(pieces))

    def _table(self, targets: tuple[str, ...], bad: str) -> tuple[str, ...]:
        """Where a call through a register goes, by the number of the function's address; the last entry is a fault."""
        allowed = set(targets)
        return (*(f"%entry:{name}" if name in allowed else bad for name in self._plan.addresses), bad)


def _advance(bytes_: int, call: Instruction) -> Statement:
    return Instruction(
        "add", ("u64",), ("u64",), (FRAME, FRAME, IntegerOperand(bytes_)), None, call.line, call.column
    )


def _check_counts(
    call: Instruction, function: Function, results: tuple[Operand, ...], arguments: tuple[Operand, ...]
) -> None:
    if len(arguments) != len(function.parameters) or len(results) != len(function.returns):
        raise PtxSyntaxError(
            call.line, call.column,
            f"{function.name} takes {len(function.parameters)} arguments and gives {len(function.returns)} results, "
            f"not {len(arguments)} and {len(results)}",
        )  # fmt: skip
