"""Instructions do what they say: `meaning` is what the text does.

Element-wise ones are emulated on values of every size; those of every family in kernels, on whole tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType, dtype
from tinygpu.interpreter.fault import NoMeaning, ProgramFault
from tinygpu.language.instruction import Elementwise, Instruction
from tinygpu.language.memories import RMEM
from tinygpu.language.reference import precision_of
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.emulator import EmulationFault, PtxSyntaxError, UnsupportedInstruction, emulate
from tinygpu.ptx.runtime.narrow import packed as packed_bytes
from tinygpu.ptx.runtime.narrow import unpacked
from tinygpu.testing.bench import Bench
from tinygpu.testing.case import Case
from tinygpu.testing.report import Failure, Row
from tinygpu.testing.statements import Identity, recorded_words, used, wrong_statements
from tinygpu.testing.workbench import Allowance
from tinygpu.users_code import UsersCodeError, with_place, written_at

THREADS = 256
OPERANDS = "abce"
# Exponents of the random operands: beyond them approximate functions promise less, and products leave 16-bit types.
EXPONENTS = (-4, 3)
# Kernels in which instructions of every family are looked at, at most, and CPU time after which no more are begun.
KERNELS, TILES_SECONDS = 6, 3.0
# Candidates of a structure, of which the smallest is looked at.
POINTS = 6
# What keeps a program from being run; an instruction without a meaning is noted apart.
NOT_RUN = (ProgramFault, UsersCodeError)
# Rounding errors, in units of the last place, that a result may have per operation, of its own size and of its terms'.
UNITS = 4


def check_meanings(bench: Bench) -> Row:
    """The row of tier 1 about instructions: those of the class and those that programs make."""
    instructions: dict[tuple[object, ...], tuple[str, Elementwise]] = {}
    for _, space in bench.spaces():
        for traced in space.traces:
            for name, instruction in applied(traced.program):
                identity = (type(instruction), instruction.elements(), instruction.text(), instruction.packed_text())
                instructions.setdefault(identity, (name, instruction))
    failures = []
    unsaid = []
    tried = 0
    for name, instruction in instructions.values():
        bench.progress(f"the meaning of {name}")
        try:
            fault = meaning_fault(instruction, bench.rng(f"meaning of {name}"), _approximation(bench))
        except NotImplementedError:
            unsaid.append(name)
            continue
        tried += 1
        if fault:
            where = written_at(instruction.meaning)
            failures.append(Failure(f"{where}{': ' if where else ''}{name} ({instruction.label}): {fault}"))
    failed = {name for name, instruction in instructions.values() if any(f"{name} (" in f.sentence for f in failures)}
    known = {(name, type(instruction)) for name, instruction in instructions.values() if name not in unsaid}
    whole, more = _on_tiles(bench, failed)
    failures += more
    tried = len(known | whole)
    notes = [f"without a meaning: {', '.join(unsaid)}"] if unsaid else []
    absent = "" if instructions or whole else "instructions that programs use"
    return Row(1, "instructions do what they say", tried, "instructions", tuple(failures), tuple(notes), absent)


def _on_tiles(bench: Bench, failed: set[str]) -> tuple[set[Identity], list[Failure]]:
    """(instructions of every family that were tried in kernels, what is wrong beside `failed`).

    One candidate of each structure that uses what no other has shown, of a few at most.
    """
    tried: set[Identity] = set()
    wrong: dict[str, Failure] = {}
    kernels, allowance = 0, Allowance.of(TILES_SECONDS)
    for case, space in bench.spaces():
        for traced in space.traces:
            new = {identity for identity, _ in used(traced.program)} - tried
            if not new or kernels == KERNELS or (kernels and allowance.spent):
                continue
            part = space.space.restrict(dict(traced.program.structure))
            if not part.size:
                continue
            points = part.sample(POINTS, bench.rng(f"{kernels} on tiles"))
            point = min(points, key=lambda p: recorded_words(space.program(p)))
            bench.progress(f"what {', '.join(sorted({name for name, _ in new if name}))} mean of whole tiles")
            kernels += 1
            of = Case(case.machine, case.problem, case.device, point)
            try:
                found, seen = wrong_statements(of, bench.workbench)
            except NoMeaning:
                continue  # it is among those without a meaning
            except NOT_RUN as fault:
                told = f"the program cannot be run as it is written: {with_place(fault)}"
                found, seen = {("", Instruction): told}, new
            tried |= seen
            for (name, _), sentence in found.items():
                if name not in failed:
                    wrong.setdefault(name, Failure(sentence, "meanings", of))
    return {identity for identity in tried if identity[0]}, list(wrong.values())


def applied(program: Program) -> Iterator[tuple[str, Elementwise]]:
    """Element-wise instructions of a program, with the names of their attributes."""
    for s in walk(program.body):
        if isinstance(s, n.Apply) and s.result.memory is RMEM:
            yield s.name, s.instruction
        elif isinstance(s, n.FixUp):
            yield s.name, s.combine
        elif isinstance(s, n.Combining):
            yield from ((step.name, step.instruction) for step in s.merge.steps)


def _approximation(bench: Bench) -> float:
    """The largest relative error that the machine claims for approximate instructions."""
    return max(precision_of(bench.machine, dict(p.problem.options))[1] for p in bench.posings)


def meaning_fault(instruction: Elementwise, rng: np.random.Generator, approximation: float) -> str:
    """Where `meaning` and an emulated text differ by more than rounding explains; "" where they do not.

    approximation  relative error of approximate instructions

    Raises NotImplementedError where the instruction has no meaning.
    """
    inputs = [_values(dtype(kind), rng) for kind in instruction.elements()[0]]
    meant = _meant(instruction, inputs)
    if isinstance(meant, str):
        return meant
    texts = (
        ("text", instruction.form(False)), ("packed text", instruction.form(True)),
        ("unpacked text", instruction.unpacked_text()),
    )  # fmt: skip
    for form, text in texts:
        fault = _text_fault(instruction, form, inputs, meant, approximation) if text else ""
        if fault:
            return fault
    return ""


def _text_fault(
    instruction: Elementwise, form: str, inputs: list[NDArray[Any]], meant: NDArray[Any], approximation: float
) -> str:
    """Where one of the texts does something else."""
    _, gives = instruction.elements()
    try:
        whole = form == "unpacked text"
        got = _unpacked(instruction, inputs[0]) if whole else _emulated(instruction, inputs, form == "packed text")
    except (EmulationFault, PtxSyntaxError, UnsupportedInstruction) as fault:
        return f"its {form} does not run: {fault}"
    bound = _bound(instruction, inputs, meant, dtype(gives), approximation)
    wide, want = got.astype(np.float64), meant.astype(np.float64)
    with np.errstate(all="ignore"):
        near = (np.abs(wide - want) <= bound) | (wide == want) | (np.isnan(wide) & np.isnan(want))
        beyond = np.abs(want) >= _largest(dtype(gives))  # what leaves the type saturates or becomes infinite
    wrong = np.flatnonzero(~(near | beyond) & _defined(instruction, inputs))
    if not len(wrong):
        return ""
    first = int(wrong[np.argmin([sum(abs(float(i[w])) for i in inputs) for w in wrong])])
    given = ", ".join(f"{letter} = {_shown(i[first])}" for letter, i in zip(OPERANDS, inputs, strict=False))
    return (
        f"of {given} its meaning makes {_shown(want[first])}, and its {form}, emulated, {_shown(wide[first])} "
        f"({len(wrong)} of {THREADS} values differ)"
    )


def _shown(value: Any) -> str:
    return f"{float(value):.9g}"


def _defined(instruction: Elementwise, inputs: list[NDArray[Any]]) -> NDArray[np.bool_]:
    """(THREADS,) of which inputs a result is specified."""
    return np.broadcast_to(np.asarray(instruction.defined(*inputs), dtype=np.bool_), (THREADS,))


def _meant(instruction: Elementwise, inputs: list[NDArray[Any]]) -> NDArray[Any] | str:
    with np.errstate(all="ignore"):
        try:
            meant = np.asarray(instruction.meaning(*inputs))
        except NotImplementedError:
            raise
        except Exception as error:  # the author's own NumPy
            return f"its meaning raises {type(error).__name__}: {error}"
    if meant.shape not in ((), (THREADS,)) or (meant.dtype.kind not in "biuf" and meant.dtype.name not in _narrow()):
        return f"its meaning makes {meant.dtype} of shape {meant.shape} of {THREADS} values; they give as many numbers"
    return np.broadcast_to(meant, (THREADS,))


def _narrow() -> tuple[str, ...]:
    return tuple(dtype(kind).numpy.name for kind in ("bf16", "e4m3", "e5m2", "e2m1", "s4", "u4"))


def _values(kind: DType, rng: np.random.Generator) -> NDArray[Any]:
    """(THREADS,) small whole numbers, and random numbers of several sizes; of 4 bits all that there are."""
    if kind.bits == 4:
        return rng.integers(0, 16, THREADS).astype(np.uint8).view(kind.numpy)
    if not kind.is_float:
        low, high = {"unsigned": (0, 33), "predicate": (0, 2)}.get(kind.kind, (-17, 17))
        return rng.integers(low, high, THREADS).astype(kind.numpy)
    half = THREADS // 2
    whole = rng.integers(-5, 6, half).astype(np.float64)
    sizes = 2.0 ** rng.integers(EXPONENTS[0], EXPONENTS[1] + 1, THREADS - half)
    values = np.concatenate([whole, rng.uniform(-1, 1, THREADS - half) * sizes]).astype(np.float32)
    if kind.name == "tf32":
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(kind.numpy)


def _emulated(instruction: Elementwise, inputs: list[NDArray[Any]], packed: bool) -> NDArray[Any]:
    """What a text makes of one value of each operand per thread, or of as many as a register of the result holds."""
    takes, gives = [dtype(kind) for kind in instruction.elements()[0]], dtype(instruction.elements()[1])
    out = np.zeros(THREADS, dtype=gives.numpy)
    per = 32 // gives.bits if packed else 1
    text = instruction.form(packed)
    ptx = _kernel(instruction, text, takes, gives, per)
    held = zip([*inputs, out], [*takes, gives], strict=True)
    stored = [values.view(np.uint8) if kind.bits == 4 else values for values, kind in held]
    if packed and gives.bits == 4:
        whole = np.zeros(THREADS // 2, dtype=np.uint8)
        emulate(ptx, grid=1, block=THREADS // per, args=[*(i.copy() for i in stored[:-1]), whole])
        return unpacked(whole, 4).view(gives.numpy)
    emulate(ptx, grid=1, block=THREADS // per, args=[*(i.copy() for i in stored[:-1]), stored[-1]])
    return out


def _unpacked(instruction: Elementwise, values: NDArray[Any]) -> NDArray[Any]:
    """What a text makes of registers that hold as many values as fit, one register in each thread."""
    takes, gives = dtype(instruction.elements()[0][0]), dtype(instruction.elements()[1])
    per = 32 // takes.bits
    count, out = per * gives.bits // 32, np.zeros(THREADS, dtype=gives.numpy)
    codes = values.view(np.uint8)
    held = packed_bytes(codes, 4) if takes.bits == 4 else codes
    results = {f"d{i}": f"%r{10 + i}" for i in range(count)}
    lines = [*_begun(instruction, ["a", "d"]), "mul.wide.u32 %d2, %r6, 4;", "add.s64 %d0, %d0, %d2;"]
    lines += [f"mad.wide.u32 %d1, %r6, {4 * count}, %d1;", "ld.global.b32 %r0, [%d0];"]
    lines += instruction.unpacked_text().format(a="%r0", **results).split("\n")
    lines += [f"st.global.b32 [%d1+{4 * i}], %r{10 + i};" for i in range(count)]
    emulate("\n".join([*lines, "ret;", "}"]) + "\n", grid=1, block=THREADS // per, args=[held.copy(), out])
    return out


def _begun(instruction: Elementwise, operands: list[str]) -> list[str]:
    """The first lines of a kernel that takes addresses, %d0 and so on, and has the thread in %r6."""
    major, minor = max(instruction.isa, (7, 8))
    target = f"{max(instruction.target, 90)}{'a' if instruction.only else ''}"
    names = [f"{letter}_ptr" for letter in operands]
    lines = [f".version {major}.{minor}", f".target sm_{target}", ".address_size 64", ".visible .entry meaning("]
    lines.append(", ".join(f".param .u64 {name}" for name in names) + ")")
    kept = (".reg .b16 %h<32>;", ".reg .b32 %r<32>;", ".reg .b64 %d<32>;", ".reg .pred %p<32>;")
    loads = [f"ld.param.u64 %d{place}, [{name}];" for place, name in enumerate(names)]
    return [*lines, "{", *kept, "mov.u32 %r6, %tid.x;", *loads]


def _kernel(instruction: Elementwise, text: str, takes: list[DType], gives: DType, per: int) -> str:
    """Applies a text to `per` neighbours in each thread: in one register, where they are as wide as the result."""
    registers = dict[str, str]()
    loads = []
    for place, (letter, kind) in enumerate(zip(OPERANDS, takes, strict=False)):
        if per > 1 and kind.bits == gives.bits:
            registers[letter] = f"%r{10 + place}"
            loads.append(f"ld.global.b32 {registers[letter]}, [%d{20 + place}];")
            continue
        for i in range(per):
            name = f"{letter}{i}" if per > 1 else letter
            registers[name] = _register(kind, 10 + place * per + i)
            address = f"[%d{20 + place}+{i * kind.numpy.itemsize}]"
            if kind.kind == "predicate":  # a byte in memory
                loads += [f"ld.global.u8 %r30, {address};", f"setp.ne.u32 {registers[name]}, %r30, 0;"]
            else:
                loads.append(f"ld.global.{_moved(kind)} {registers[name]}, {address};")
    result = "%r0" if per > 1 else _register(gives, 0)
    lines = _begun(instruction, [*OPERANDS[: len(takes)], "d"])
    for place, kind in enumerate([*takes, gives]):
        stride = 4 if place == len(takes) and per > 1 else per * kind.numpy.itemsize
        lines.append(f"mad.wide.u32 %d{20 + place}, %r6, {stride}, %d{place};")
    lines += [*loads, *text.format(d=result, **registers).split("\n")]
    if gives.bits == 4 and per == 1:
        lines += [f"and.b32 %r31, {result}, 15;", f"st.global.u8 [%d{20 + len(takes)}], %r31;", "ret;", "}"]
    elif gives.kind == "predicate":
        lines += [f"selp.u32 %r31, 1, 0, {result};", f"st.global.u8 [%d{20 + len(takes)}], %r31;", "ret;", "}"]
    else:
        lines += [f"st.global.b{per * gives.bits} [%d{20 + len(takes)}], {result};", "ret;", "}"]
    return "\n".join(lines) + "\n"


def _register(kind: DType, number: int) -> str:
    return f"%{ {64: 'd', 16: 'h', 1: 'p'}.get(kind.bits, 'r') }{number}".replace(" ", "")


def _moved(kind: DType) -> str:
    if kind.bits == 4:  # a byte in memory
        return "u8"
    return f"{'s' if kind.kind == 'signed' else 'u'}8" if kind.bits == 8 else f"b{kind.bits}"


def _bound(
    instruction: Elementwise, inputs: list[NDArray[Any]], meant: NDArray[Any], gives: DType, approximation: float
) -> NDArray[np.float64]:
    """How far rounding may take a result: of its own size, of its terms', and of operands that are off by a rounding.

    What an instruction of the library is known to be off by, is added.
    """
    if not gives.is_float:
        return np.zeros(THREADS)
    unit = 2.0 ** -(min([gives.mantissa, *(dtype(k).mantissa for k in instruction.elements()[0] if dtype(k).is_float)]))
    want = meant.astype(np.float64)
    floats = [i.dtype.kind == "f" or i.dtype.name in _narrow() for i in inputs]
    with np.errstate(all="ignore"):
        try:
            terms = np.abs(_wide(instruction, [np.abs(i) if f else i for i, f in zip(inputs, floats, strict=True)]))
            moved = [i.astype(np.float64) * (1 + unit) if f else i for i, f in zip(inputs, floats, strict=True)]
            shift = np.abs(_wide(instruction, moved) - _wide(instruction, [i.astype(np.float64) for i in inputs]))
        except Exception:  # a meaning for stored types only
            terms, shift = np.abs(want), np.zeros(THREADS)
    own = getattr(instruction, "error", None)
    relative, absolute = (own().relative, own().absolute) if own is not None else (0.0, 0.0)
    operations = UNITS + 2 * max(1, instruction.flops)
    own_size, terms, shift = (np.nan_to_num(a, posinf=0.0) for a in (np.abs(want), terms, shift))
    bound = operations * unit * (own_size + terms) + (approximation + 2 * relative) * own_size + absolute
    return np.asarray(bound + UNITS * shift + 2.0**-126, dtype=np.float64)


def _wide(instruction: Elementwise, values: list[NDArray[Any]]) -> NDArray[np.float64]:
    return np.broadcast_to(np.asarray(instruction.meaning(*values), dtype=np.float64), (THREADS,))


def _largest(kind: DType) -> float:
    """The first number that a type rounds to infinity or saturates."""
    if kind.kind == "predicate":
        return np.inf
    if not kind.is_float:
        return float((1 << (kind.bits - (kind.kind == "signed"))) - 1)
    return float(np.finfo(np.float32).max) if kind.numpy == np.float32 else 240.0 if kind.bits == 8 else 32768.0
