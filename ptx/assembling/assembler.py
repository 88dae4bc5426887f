"""Assemble: PTX text to a cubin, in this process, without a driver or a GPU.

nvJitLink (from the wheel nvidia-nvjitlink, reached through cuda.bindings) does the work in about 10 ms a kernel. Its
log tells registers, spills, stack and shared memory; its errors name a PTX line. Lowering writes a comment above the
lines of each of the machine's instructions, so that an error here can say which instruction of the machine it is about.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

# ptxas says "lower bound of 24" for a smaller limit (sm_80) and ignores one above 255, the most that an instruction
# can address (PTX ISA, .maxnreg).
LEAST_REGISTER_LIMIT = 24
GREATEST_REGISTER_LIMIT = 255
# What launch_registers divides up: an SM of compute capability 9.0 and later (CUDA C++ Programming Guide, "Compute
# Capabilities").
WARPS_PER_SM = 64
PARTITIONS_PER_SM = 4
REGISTERS_PER_PARTITION = 16384
REGISTERS_AT_A_TIME = 8

_LINES = re.DOTALL | re.MULTILINE

_UNAVAILABLE = (
    "assembling needs the wheels cuda-python and nvidia-nvjitlink, which exist for Linux and Windows only; "
    "everything except assembling and timing works without them"
)


class AssemblerUnavailable(RuntimeError):
    """The CUDA wheels are not installed here; nothing is wrong with the kernel."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One complaint of the assembler.

    message      the assembler's own words
    line         PTX line, counted from 1; None where the complaint is about the whole module
    text         that line, without its indentation; "" without a line
    instruction  the nearest comment above it, which names the machine's instruction; "" where there is none
    """

    message: str
    line: int | None = None
    text: str = ""
    instruction: str = ""

    def __str__(self) -> str:
        if self.line is None:
            return self.message
        within = f", in {self.instruction!r}" if self.instruction else ""
        return f"PTX line {self.line}{within}: {self.message}: {self.text}"


class AssemblerError(ValueError):
    """The assembler refused a kernel; `faults` says where and why, `log` is all it wrote."""

    def __init__(self, target: str, faults: tuple[Fault, ...], log: str = "") -> None:
        self.target = target
        self.faults = faults
        self.log = log
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"[{target}] {faults[0]}{more}")

    def __reduce__(self) -> tuple[type[AssemblerError], tuple[str, tuple[Fault, ...], str]]:
        return type(self), (self.target, self.faults, self.log)


@dataclass(frozen=True, slots=True)
class Assembly:
    """One kernel's machine code, with what the assembler says of it.

    cubin              the ELF file that a driver loads
    target             the architecture that it runs on: "sm_90a"
    registers          32-bit registers per thread, as the driver allocates them at launch; where roles have budgets
                       (setmaxnreg) that is what all threads begin with (`launch_registers`)
    spill_store_bytes  bytes that one thread writes to local memory because registers ran out; where roles have register
                       budgets (setmaxnreg), under the largest of them
    spill_load_bytes   bytes that it reads back
    stack_bytes        local memory per thread, spills included
    static_smem_bytes  shared memory per CTA that the PTX declares with a size; what the system reserves is not in it
    barriers           named barriers that the kernel uses per CTA
    warnings           the assembler's warnings and advice, word for word
    log                everything that the assembler wrote
    one_budget         the machine code gives all threads the largest of the kernel's register budgets, since they spill
                       even so, or since the assembler ignores budgets
    """

    cubin: bytes
    target: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    barriers: int
    warnings: tuple[str, ...] = ()
    log: str = ""
    one_budget: bool = False

    @property
    def spills(self) -> bool:
        return self.spill_store_bytes + self.spill_load_bytes > 0

    @property
    def heeds_budgets(self) -> bool:
        """Whether the machine code has the register budgets (setmaxnreg) that the PTX states; true without any.

        nvJitLink compiles for linking and ignores them (C7504), and roles spill that count on more registers: a GPU is
        given the PTX of such a kernel, or machine code of ptxas, which compiles it as a whole.
        """
        return not (self.one_budget or any("'setmaxnreg' ignored" in warning for warning in self.warnings))

    @property
    def loadable(self) -> bytes | None:
        """The machine code, where it does all that the PTX says; None where a driver is better given the PTX."""
        return self.cubin if self.heeds_budgets else None

    def __str__(self) -> str:
        spilled = (
            f"{self.spill_store_bytes} B stored and {self.spill_load_bytes} B loaded by spills"
            if self.spills
            else "no spills"
        )
        return (
            f"{self.target}: {self.registers} registers, {spilled}, {self.stack_bytes} B stack, "
            f"{self.static_smem_bytes} B static shared memory, {self.barriers} barriers, {len(self.cubin)} B cubin"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything, ready for json.dump; the cubin in base64."""
        return {
            "cubin": base64.b64encode(self.cubin).decode("ascii"),
            "target": self.target,
            "registers": self.registers,
            "spill_store_bytes": self.spill_store_bytes,
            "spill_load_bytes": self.spill_load_bytes,
            "stack_bytes": self.stack_bytes,
            "static_smem_bytes": self.static_smem_bytes,
            "barriers": self.barriers,
            "warnings": list(self.warnings),
            "log": self.log,
            "one_budget": self.one_budget,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Assembly:
        """The assembly that `to_json` wrote."""
        fields = dict(data)
        fields["cubin"] = base64.b64decode(fields["cubin"])
        fields["warnings"] = tuple(fields["warnings"])
        return Assembly(**fields)


def assemble(ptx: str, target: str, *, max_registers: int | None = None) -> Assembly:
    """The machine code of the one kernel in `ptx` for `target` ("sm_80", "sm_90a", ...).

    max_registers  a limit per thread, 24 to 255, that the assembler keeps by spilling. It is for PTX without .maxntid,
                   .reqntid or .maxnreg: those fix the limit in the text, and the assembler would ignore this one.

    Raises AssemblerError where the assembler refuses the kernel, AssemblerUnavailable without the CUDA wheels, and
    ValueError for a limit that cannot hold or a target that is none.
    """
    _parts(target)
    options = [f"-arch={target}", "-verbose"]
    if max_registers is not None:
        _check_limit(ptx, max_registers)
        options.append(f"-maxrregcount={max_registers}")
    kernels = entry_names(ptx)
    if len(kernels) != 1:
        found = f"{len(kernels)} kernels ({', '.join(kernels)})" if kernels else "no kernel"
        raise AssemblerError(target, (Fault(f"the PTX holds {found}, and one is assembled at a time"),))
    wide = _with_largest_budget(ptx)
    if not wide:
        return _read_log(*_link(ptx, target, options), target, kernels[0])
    # With the largest budget for all threads the kernel spills where it does as a whole program. Where it spills, or
    # budgets are ignored, the assembler is not asked a second time, for machine code that roles with more registers
    # than that have do not run.
    whole = replace(_read_log(*_link(wide, target, options), target, kernels[0]), one_budget=True)
    registers = launch_registers(ptx)
    if registers is not None and (whole.spills or not _links_budgets(_version(ptx), target)):
        return replace(whole, registers=registers)
    assembly = _read_log(*_link(ptx, target, options), target, kernels[0])
    if assembly.heeds_budgets:
        return assembly
    return replace(
        assembly,
        registers=registers or assembly.registers,
        spill_store_bytes=whole.spill_store_bytes,
        spill_load_bytes=whole.spill_load_bytes,
        stack_bytes=whole.stack_bytes,
    )


def load() -> None:
    """Loads the assembler's library, so that copies of this process need not; without the wheels, nothing."""
    try:
        from cuda.bindings import nvjitlink
        from cuda.pathfinder import DynamicLibNotFoundError
    except ImportError:
        return
    with suppress(DynamicLibNotFoundError):
        nvjitlink.version()


def launch_registers(ptx: str) -> int | None:
    """The registers that every thread of a kernel with register budgets (setmaxnreg) has at launch.

    As many as let the CTAs of .minnctapersm be on an SM together, or those of .maxnreg: setmaxnreg moves them between
    roles later, and the SM has no others. None without budgets, or where the PTX does not say how many CTAs or threads
    there are: then budgets are ignored. The rule was read off ptxas 13.5, by assembling sizes and numbers of CTAs.
    """
    text = _without_comments(ptx)
    if "setmaxnreg" not in text:
        return None
    limit = re.search(r"\.maxnreg\s+(\d+)", text)
    if limit is not None:
        return int(limit[1])
    size = re.search(r"\.(?:reqntid|maxntid)\s+([\d\s,]+)", text)
    ctas = re.search(r"\.minnctapersm\s+(\d+)", text)
    if size is None or ctas is None:
        return None
    warps = -(-prod(int(extent) for extent in size[1].split(",")) // 32) * int(ctas[1])
    if not 0 < warps <= WARPS_PER_SM:
        return None
    each = REGISTERS_PER_PARTITION // (32 * -(-warps // PARTITIONS_PER_SM))
    return min(each // REGISTERS_AT_A_TIME * REGISTERS_AT_A_TIME, GREATEST_REGISTER_LIMIT)


def _with_largest_budget(ptx: str) -> str:
    """The kernel with as many registers for every thread as the role with most gets; "" without a place to say so."""
    budgets = [int(b) for b in re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", _without_comments(ptx))]
    limits = re.compile(r"\.(reqntid|maxntid|minnctapersm|maxnreg)\s+\d+(\s*,\s*\d+)*")
    first = limits.search(ptx)
    if not budgets or first is None:
        return ""
    most = min(max(budgets), GREATEST_REGISTER_LIMIT)
    rest = limits.sub("", ptx[first.end() :])
    return ptx[: first.start()] + f".maxnreg {most}" + re.sub(r"setmaxnreg\.[^;]*;", "", rest)


# A kernel that does nothing, with budgets.
_BUDGETS = """
.version {version}
.target {target}
.address_size 64
.visible .entry budgets()
.reqntid 256, 1, 1
.minnctapersm 1
{{
  .reg .pred %p;
  .reg .b32 %thread;
  mov.u32 %thread, %tid.x;
  setp.lt.u32 %p, %thread, 128;
  @%p bra MORE;
  setmaxnreg.dec.sync.aligned.u32 24;
  bra END;
MORE:
  setmaxnreg.inc.sync.aligned.u32 240;
END:
  ret;
}}
"""


@lru_cache(maxsize=16)
def _links_budgets(version: str, target: str) -> bool:
    """Whether code that is made for linking keeps register budgets; those of today's nvJitLink do not, "to maintain
    compatibility across compilation units" (C7504).
    """
    text = _BUDGETS.format(version=version, target=target)
    return "'setmaxnreg' ignored" not in _link(text, target, [f"-arch={target}", "-verbose"])[1]


def _version(ptx: str) -> str:
    """What the text says of its own language: "8.0"."""
    return re.search(r"\.version\s+(\d+\.\d+)", ptx)[1]  # type: ignore[index]  # the assembler has read it


def _check_limit(ptx: str, max_registers: int) -> None:
    if not LEAST_REGISTER_LIMIT <= max_registers <= GREATEST_REGISTER_LIMIT:
        raise ValueError(
            f"max_registers is {LEAST_REGISTER_LIMIT} to {GREATEST_REGISTER_LIMIT} per thread, not {max_registers}"
        )
    fixed = re.search(r"\.(maxntid|reqntid|maxnreg)\b", _without_comments(ptx))
    if fixed is not None:
        raise ValueError(
            f"max_registers={max_registers} would be ignored, because the PTX states .{fixed[1]}; "
            f"write .maxnreg {max_registers} into the PTX instead"
        )


def entry_names(ptx: str) -> tuple[str, ...]:
    """Names of the kernels that a PTX text defines, in order.

    >>> entry_names(".visible .entry saxpy(.param .u64 x) { ret; }")
    ('saxpy',)
    """
    return tuple(re.findall(r"\.entry\s+([\w$%.]+)", _without_comments(ptx)))


def _without_comments(ptx: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", ptx, flags=re.DOTALL)


def _link(ptx: str, target: str, options: list[str]) -> tuple[bytes, str]:
    """The cubin and the log, or an AssemblerError; the only function that touches the CUDA wheels."""
    try:
        from cuda.bindings import nvjitlink
        from cuda.pathfinder import DynamicLibNotFoundError
    except ImportError as missing:
        raise AssemblerUnavailable(_UNAVAILABLE) from missing
    try:
        handle = nvjitlink.create(len(options), options)
    except DynamicLibNotFoundError as missing:
        raise AssemblerUnavailable(_UNAVAILABLE) from missing
    except nvjitlink.nvJitLinkError as refused:
        raise AssemblerError(target, (Fault(f"this assembler does not know the target {target!r}"),)) from refused
    try:
        text = ptx.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "kernel")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as refused:
            log = _text(nvjitlink.get_error_log_size, nvjitlink.get_error_log, handle)
            raise AssemblerError(target, faults_in(ptx, target, log, str(refused)), log) from None
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin), _text(nvjitlink.get_info_log_size, nvjitlink.get_info_log, handle)
    finally:
        nvjitlink.destroy(handle)


def _text(size: Any, read: Any, handle: Any) -> str:
    buffer = bytearray(size(handle))
    if buffer:
        read(handle, buffer)
    return buffer.decode(errors="replace").rstrip("\0 \n")


def faults_in(ptx: str, target: str, log: str, code: str) -> tuple[Fault, ...]:
    """The complaints in an error log, in the order of the PTX lines; those about the whole module come last."""
    lines = ptx.splitlines()
    faults: list[Fault] = []
    for complaint in log.splitlines():
        located = re.match(r"ptxas .*?, line (?P<line>\d+); (?:error|fatal) *: (?P<message>.*)", complaint) or re.match(
            r"ptxas (?:error|fatal) *: (?P<message>.*) on line (?P<line>\d+)", complaint
        )
        if located:
            number = statement_line(lines, int(located["line"]), located["message"])
            text = lines[number - 1].strip() if number <= len(lines) else ""
            faults.append(Fault(located["message"].strip(), number, text, instruction_above(lines, number)))
        elif (general := re.match(r"(?:ptxas )?(?:error|fatal) *: (.*)", complaint)) and not re.search(
            "aborted due to errors", complaint
        ):
            faults.append(Fault(_explained(general[1].strip(), ptx, target)))
    # The assembler reports what it finds while parsing before unknown symbols; a reader goes from top to bottom.
    faults.sort(key=lambda fault: (fault.line is None, fault.line or 0))
    return tuple(faults) or (Fault(f"the assembler failed without saying why ({code})"),)


def statement_line(lines: list[str], number: int, message: str) -> int:
    """The line (from 1) of the statement that a parser stumbled over at line `number`.

    A statement without its end is noticed at what follows; that may be lines and comments further down.
    """
    if not message.startswith("Parsing error"):
        return number
    code = [re.sub(r"//.*|/\*.*?\*/", "", line).strip() for line in lines]
    before = next((n for n in range(min(number - 1, len(code)), 0, -1) if code[n - 1]), number)
    here = code[number - 1] if number <= len(code) else ""
    unfinished = before < number and code[before - 1][-1:] not in (";", "{", "}", ":", ")", ",")
    return before if unfinished or not here else number


def instruction_above(lines: list[str], number: int) -> str:
    """The words of the nearest whole-line comment above line `number` (from 1), within the kernel: the instruction."""
    for line in reversed(lines[: number - 1]):
        stripped = line.strip()
        if re.search(r"\.(entry|func)\b", stripped):
            return ""  # what stands above the kernel is about the whole of it
        if stripped.startswith("//") and stripped.strip("/ "):
            return stripped.lstrip("/").strip()
    return ""


def _explained(message: str, ptx: str, target: str) -> str:
    stated = re.search(r"\.target\s+(sm_\w+)", _without_comments(ptx))
    reason = cannot_run(stated[1], target) if stated else ""
    return reason or message


def cannot_run(stated: str, target: str) -> str:
    """Why PTX with `.target stated` cannot be assembled for `target`, as a sentence; "" when it can.

    >>> cannot_run("sm_80", "sm_90a")
    ''
    >>> cannot_run("sm_90a", "sm_100a")
    'the PTX states .target sm_90a, which runs on sm_90a alone, not on sm_100a'
    """
    (number, suffix), (wanted_number, _) = _parts(stated), _parts(target)
    # PTX ISA, .target: plain PTX runs on every later architecture; PTX of an "a" target on that one alone; PTX of an
    # "f" target on the later members of its family, which share the major number.
    if suffix == "a":
        runs = stated == target
        where = f"on {stated} alone"
    elif suffix == "f":
        runs = wanted_number // 10 == number // 10 and wanted_number >= number
        where = f"on sm_{number} and later of its family"
    else:
        runs = wanted_number >= number
        where = f"on {stated} and later"
    return "" if runs else f"the PTX states .target {stated}, which runs {where}, not on {target}"


def _parts(target: str) -> tuple[int, str]:
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        raise ValueError(f"a target is written like 'sm_80' or 'sm_90a', not {target!r}")
    return int(match[1]), match[2]


def _read_log(cubin: bytes, log: str, target: str, kernel: str) -> Assembly:
    """The figures of `kernel` from the assembler's verbose log."""
    # Each function that was compiled has a line of its own; the functions of a one-kernel module serve that kernel.
    spills = re.findall(r"bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    declared = re.search(rf"Compiling entry function '{re.escape(kernel)}'.*?^(ptxas info *: Used .*?)$", log, _LINES)
    # The linker's line holds what the kernel and the functions that it calls need together. Its shared memory and its
    # barriers count what the system reserves (from sm_90 on 1,024 bytes per CTA); the compiler's line has both.
    linked = re.search(rf"^info *: Function properties for '{re.escape(kernel)}':\n(info *: used .*?)$", log, _LINES)
    if not spills or declared is None or linked is None:
        raise RuntimeError(f"the assembler's log does not give the figures of {kernel!r}: {log!r}")
    return Assembly(
        cubin=cubin,
        target=target,
        registers=figure_in(r"used (\d+) registers", linked[1]),
        spill_store_bytes=sum(int(stored) for stored, _ in spills),
        spill_load_bytes=sum(int(loaded) for _, loaded in spills),
        stack_bytes=figure_in(r"(\d+) stack", linked[1]),
        static_smem_bytes=figure_in(r"(\d+) bytes smem", declared[1]),
        barriers=figure_in(r"used (\d+) barriers", declared[1]),
        warnings=warnings_in(log),
        log=log,
    )


def figure_in(pattern: str, line: str) -> int:
    """The number that a pattern finds in a line of a log; 0 where it finds none."""
    match = re.search(pattern, line)
    return int(match[1]) if match else 0


def warnings_in(log: str) -> tuple[str, ...]:
    """Warnings in a log, and advice that bears a code: "(C7510) Potential Performance Loss: wgmma.mma_async ..."."""
    found = re.findall(r"^ptxas .*?(?:warning *: (.*)|info *: (\(C\d+\).*))$", log, re.MULTILINE)
    return tuple((warning or advice).strip() for warning, advice in found)
