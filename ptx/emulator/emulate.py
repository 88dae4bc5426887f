"""The door: run a PTX kernel on NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import EmulationFault, LaunchError, PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.report import Report
from tinygpu.ptx.emulator.run.arguments import bind_arguments
from tinygpu.ptx.emulator.run.launching import choose_ctas, make_launch
from tinygpu.ptx.emulator.run.placement import make_binder
from tinygpu.ptx.emulator.run.prepared import PreparedKernel, prepare
from tinygpu.ptx.emulator.run.program import Program, compile_program
from tinygpu.ptx.emulator.run.scheduler import Scheduler
from tinygpu.ptx.emulator.source.linking import in_its_module
from tinygpu.ptx.emulator.state.access_stream import AccessStream
from tinygpu.ptx.emulator.state.buffers import DeviceBuffer, SparseBuffer
from tinygpu.ptx.emulator.state.caches import Caches, Traffic, traffic
from tinygpu.ptx.emulator.state.emulation import ORDERS, Check, Dim3, Emulation, Order
from tinygpu.ptx.emulator.state.launch_constants import LaunchConstants
from tinygpu.ptx.emulator.state.memory import GlobalMemory
from tinygpu.ptx.emulator.state.meter import LineCounters, add_sites
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.state.tensor_map import TensorMap

# Arrays of about this many warps keep NumPy's call overhead small while registers stay in the cache.
_BATCH_WARPS = 256
_MAX_BATCH_BYTES = 1 << 28
# CTAs that wait for each other must be resident together; hardware holds some 64 warps on each of up to 148 SMs.
_POLLING_BATCH_WARPS = 8192


def emulate(
    ptx: str | Sequence[str] | PreparedKernel,
    *,
    entry: str | None = None,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    cluster: int | Sequence[int] = (1, 1, 1),
    args: Sequence[Any],
    dynamic_smem: int = 0,
    seed: int = 0,
    check: Check = True,
    order: Order = "late",
    ctas: Iterable[int | Sequence[int]] | None = None,
    step_limit: int = 20_000_000,
    buffers: Sequence[DeviceBuffer | SparseBuffer | TensorMap] = (),
    variables: Mapping[str, NDArray[Any]] | None = None,
    caches: Caches | None = None,
    short_sums: bool = False,
    together: int | None = None,
) -> Report:
    """Run one kernel of a PTX module, or of several, and return what was found and counted.

    ptx           PTX text, of any compiler; several texts are linked by the names that they share; or what `prepare`
                  made of them, for a kernel that is launched again and again
    entry         name of the kernel; None takes the only one
    grid, block   numbers of CTAs and of threads, as an int or up to three ints (x, y, z)
    args          one per .param, in order: NumPy arrays (device buffers, changed in place), DeviceBuffer, SparseBuffer,
                  TensorMap, NumPy or Python scalars, Struct or bytes for structs
    dynamic_smem  bytes of dynamic shared memory
    check         True: the first fault raises EmulationFault; "collect": faults are collected in the report; False: no
                  race and validity checks (out-of-bounds and misaligned accesses still raise)
    order         when asynchronous work lands: as "late" as allowed, as "early" as allowed, or "random" by `seed`;
                  "spurious": late, and whatever may fail before it succeeds fails first
    ctas          which CTAs to run, as linear numbers or (x, y, z); None runs all
    step_limit    blocks that one batch of CTAs may run before it counts as hanging
    buffers       buffers that the kernel reaches only through addresses in other buffers or in bytes
    variables     module-scope variables of constant and global space that the host has written before the launch, as
                  through cuModuleGetGlobal: arrays of as many bytes as each has
    caches        sizes of a device's L1 and L2: report.traffic says what moved between them and DRAM
    short_sums    wgmma adds products of 8-bit floats with some 13 bits behind the largest, as reported of Hopper; else
                  every instruction adds exactly and rounds once
    together      CTAs that run at the same time at most, a multiple of the cluster; others begin when these have ended

    Raises PtxSyntaxError, LaunchError, EmulationFault, and UnsupportedInstruction where one is executed.
    """
    if order not in ORDERS:
        raise LaunchError(f'order is "late", "early", "random" or "spurious", not {order!r}')
    if check not in (True, False, "collect"):
        raise LaunchError(f'check is True, False or "collect", not {check!r}')
    kernel = _prepared(ptx, entry)
    module, function = kernel.module, kernel.function
    launch = make_launch(function, grid, block, cluster, dynamic_smem)
    if together is not None and (together < 1 or together % launch.cluster_size):
        raise LaunchError(
            f"CTAs run together in whole clusters: together is a multiple of {launch.cluster_size}, not {together}"
        )
    memory = GlobalMemory()
    with np.errstate(all="ignore"):
        parameters = bind_arguments(function, args, memory, buffers)
        try:
            binder = make_binder(module, function, kernel.code, parameters, launch, memory, variables or {})
            # What listens to accesses is compiled in.
            program = kernel.program(binder) if caches is None else compile_program(function.name, kernel.code, binder)
        except (PtxSyntaxError, UnsupportedInstruction) as error:
            raise in_its_module(error, module) from None
        constants = LaunchConstants(parameters.data, binder.constants)
        emulation = Emulation(launch, constants, program, memory, order, seed, check, module, short_sums)
        chosen = choose_ctas(ctas, launch)
        stream = None
        if caches is not None:
            stream = AccessStream(len(chosen))
            stream.follow(program)
        try:
            _run(emulation, chosen, step_limit, together)
        except UnsupportedInstruction as error:
            raise in_its_module(error, module) from None
        except EmulationFault as error:
            error.registers = _registers(emulation)
            raise
        finally:
            for window in memory.windows:
                window.write_back()
    moved = None if stream is None or caches is None else traffic(stream.accesses(), caches)
    return _report(emulation, program, moved)


def _registers(emulation: Emulation) -> dict[str, int]:
    """What the thread of a fault holds in its registers of 32 and 64 bits, by their names."""
    if emulation.thread_at_fault is None:
        return {}
    residents, row, lane = emulation.thread_at_fault
    names = emulation.program.register_names
    groups = residents.registers.groups
    return {name: int(groups[group][index, row, lane]) for (group, index), name in names.items() if group >= 2}


def _prepared(ptx: str | Sequence[str] | PreparedKernel, entry: str | None) -> PreparedKernel:
    if not isinstance(ptx, PreparedKernel):
        return prepare(ptx, entry)
    if entry not in (None, ptx.function.name):
        raise LaunchError(f"this kernel was prepared as {ptx.function.name}, not as {entry!r}")
    return ptx


def _run(emulation: Emulation, ctas: list[Dim3], step_limit: int, together: int | None) -> None:
    program = emulation.program
    per_cta = (emulation.launch.threads_per_cta + 31) // 32
    emulation.total_warps = per_cta * len(ctas)
    emulation.waiting_ctas.extend(ctas)
    register_bytes = 128 * (program.register_counts[2] + 2 * program.register_counts[3]) + 4096
    bytes_per_cta = per_cta * (register_bytes + 32 * program.local.extent_bytes) + 6 * program.shared.extent_bytes
    most_warps = _POLLING_BATCH_WARPS if _spins(program) else _BATCH_WARPS
    batch = max(1, min(most_warps // per_cta, _MAX_BATCH_BYTES // max(1, bytes_per_cta)))
    size = emulation.launch.cluster_size
    batch = max(size, batch // size * size)
    if program.takes_clusters:
        # A device so small that most clusters have not started yet.
        batch = min(batch, 2 * size)
    if together is not None:
        batch = min(batch, together)
    while emulation.waiting_ctas:
        first = len(emulation.run_ctas)
        residents = Residents(emulation, emulation.start_ctas(batch), first)
        Scheduler(residents, step_limit).run()
        emulation.unfinished += residents.mbarriers.unfinished()
    emulation.counters.ctas = len(emulation.run_ctas)


def _spins(program: Program) -> bool:
    """Whether some loop looks at memory that other CTAs may change: then they had better be resident together."""
    backward = [(target, block.rank) for block in program.blocks for target in block.targets if target <= block.rank]
    polling = [block.rank for block in program.blocks if block.polls]
    return any(low <= rank <= high for rank in polling for low, high in backward)


def _report(emulation: Emulation, program: Program, moved: Traffic | None) -> Report:
    lines: dict[int, LineCounters] = {}
    counters = emulation.counters
    for block in program.blocks:
        for operation in block.operations:
            entry = lines.setdefault(operation.instruction.line, LineCounters())
            executed, threads = block.executed, block.threads
            if operation.guard is not None:
                executed, threads = operation.executed, operation.threads
            entry.executed += executed
            entry.threads += threads
            counters.instructions += executed
            counters.thread_instructions += threads
            counters.by_class[operation.kind] = counters.by_class.get(operation.kind, 0) + executed
        end = block.terminator.instruction
        if end is not None and end.opcode != "skip":
            entry = lines.setdefault(end.line, LineCounters())
            entry.executed += block.executed
            entry.threads += block.threads
            counters.instructions += block.executed
            counters.thread_instructions += block.threads
            kind = "barrier" if block.terminator.kind == "barrier" else "control"
            counters.by_class[kind] = counters.by_class.get(kind, 0) + block.executed
    for site in program.sites:
        entry = lines.setdefault(site.line, LineCounters())
        entry.requests += site.requests
        entry.sectors += site.sectors
        entry.wavefronts += site.wavefronts
        entry.bytes += site.bytes
    add_sites(counters, program.sites)
    return Report(
        program.name, tuple(emulation.faults.values()), tuple(emulation.advisories.values()), counters, lines,
        {line: emulation.line_text(line) for line in lines}, moved, tuple(emulation.unfinished),
    )  # fmt: skip
