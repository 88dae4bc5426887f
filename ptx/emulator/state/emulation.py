"""The state of one emulation: the launch, device memory, what was found, and the order of asynchronous work."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import Advisory, EmulationFault, Fault, FaultKind
from tinygpu.ptx.emulator.source.syntax import Instruction, Module
from tinygpu.ptx.emulator.state.doubts import Doubt, LaneRecord
from tinygpu.ptx.emulator.state.launch_constants import LaunchConstants
from tinygpu.ptx.emulator.state.memory import GlobalMemory
from tinygpu.ptx.emulator.state.meter import Counters
from tinygpu.ptx.emulator.state.older_values import OlderValues
from tinygpu.ptx.emulator.state.setbacks import SETBACK_ORDERS
from tinygpu.ptx.emulator.state.tensormap_fences import TensormapFences

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.run.program import Program
    from tinygpu.ptx.emulator.state.cta_order import Known
    from tinygpu.ptx.emulator.state.published import Published
    from tinygpu.ptx.emulator.state.residents import Residents

Order = Literal["late", "early", "random", "spurious"]
ORDERS: tuple[Order, ...] = get_args(Order)
Check = bool | Literal["collect"]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid, block and cluster in (x, y, z), and dynamic shared memory in bytes."""

    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_smem_bytes: int

    @property
    def threads_per_cta(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cluster_size(self) -> int:
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


class Emulation:
    """What all CTAs of a launch share while it runs.

    tick      rises with every memory instruction; the time of happens-before
    line      of the instruction that is being carried out
    landing   whether asynchronous work is being completed
    thread_at_fault  (residents, warp, lane) of the fault that was raised, where the thread stands at its instruction
    short_sums  products of 8-bit floats are added as Hopper's wgmma adds them
    checking  whether races and uninitialised values are looked for
    looks_back  whether strong reads may see older values, where nothing orders the write before them
    changes   rises with everything that another thread may be waiting for: memory that changed, threads that exited
    older     those of global memory; None where reads see the latest
    signals   rises when a wait of warps that are set aside may be over: a completed phase, tensor memory set free
    """

    def __init__(
        self, launch: Launch, constants: LaunchConstants, program: Program, memory: GlobalMemory, order: Order,
        seed: int, check: Check, source: Module, short_sums: bool = False,
    ) -> None:  # fmt: skip
        self.launch = launch
        self.constants = constants
        self.program = program
        self.memory = memory
        self.order = order
        self.random = np.random.default_rng(seed)
        self.check = check
        self.checking = check is not False
        self.source = source
        self.short_sums = short_sums
        self.tick = 1
        self.line = 0
        self.landing = False
        self.thread_at_fault: tuple[Residents, int, int] | None = None
        self._lines = array("i", (0, 0))
        self.changes = 0
        self.signals = 0
        self.clock_reads = 0
        self.lanes = LaneRecord()
        self.counters = Counters()
        self.total_warps = 0
        # Tick of the last proxy fence over global memory, per launch-wide warp; ticks of asynchronous writes there.
        self.global_proxy_fences: dict[int, int] = {}
        self.async_global_ticks: set[int] = set()
        self.tensormap_fences = TensormapFences()
        # By address of global memory: what has been published there to all clusters.
        self.locations: dict[int, Known] = {}
        self.location_doubts: dict[int, dict[int, Doubt]] = {}
        # By warp of the launch and address: when the warp last saw what strong accesses and atomics left there.
        self.observed: dict[tuple[int, int], int] = {}
        self.looks_back = self.checking and program.strong_loads and order in SETBACK_ORDERS
        self.older: OlderValues[tuple[Published, Known | None]] | None = OlderValues() if self.looks_back else None
        self.run_ctas: list[Dim3] = []
        self.waiting_ctas: deque[Dim3] = deque()
        self.faults: dict[tuple[int, str], Fault] = {}
        self.advisories: dict[tuple[int, str], Advisory] = {}
        self.unfinished: list[str] = []
        self._unwritten: dict[str, str] = {}

    def next_tick(self) -> int:
        """The time of the memory instruction that is about to be carried out."""
        self.tick += 1
        self._lines.append(self.line)
        return self.tick

    def line_at(self, tick: int) -> int:
        """The line of the instruction that was carried out at this time."""
        return self._lines[tick] if 0 <= tick < len(self._lines) else 0

    def read_clock(self) -> int:
        """The time, for a thread that asks for it."""
        self.clock_reads += 1
        return self.next_tick()

    def start_ctas(self, most: int) -> list[Dim3]:
        """The next CTAs of the launch that become resident, at most so many."""
        chosen = [self.waiting_ctas.popleft() for _ in range(min(most, len(self.waiting_ctas)))]
        self.run_ctas.extend(chosen)
        return chosen

    def take_cluster(self) -> Dim3 | None:
        """The first CTA of a cluster that has not started and never will now; None when all have started."""
        mates = [self.waiting_ctas.popleft() for _ in range(min(self.launch.cluster_size, len(self.waiting_ctas)))]
        return mates[0] if mates else None

    def cta_of(self, number: int) -> Dim3:
        """Coordinates of the number-th CTA that was run."""
        return self.run_ctas[number] if number < len(self.run_ctas) else (0, 0, 0)

    def line_text(self, line: int) -> str:
        lines = self.source.lines
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    @property
    def faults_found(self) -> int:
        """Faults so far, each as often as it was found."""
        return sum(fault.count for fault in self.faults.values())

    def fault(
        self, kind: FaultKind, instruction: Instruction, residents: Residents, row: int, lane: int | None,
        sentence: str, space: str = "", address: int | None = None, count: int = 1,
    ) -> None:  # fmt: skip
        """Raise the fault, or collect it once per line and kind. `row` and `lane` say whose it is."""
        cta, thread = residents.who(row, lane or 0)
        module, line = self.source.place(instruction.line)
        fault = Fault(
            kind, self.program.name, line, self.line_text(instruction.line), cta,
            None if lane is None else thread, space, address, sentence, count, module,
        )  # fmt: skip
        if self.check != "collect":
            self.thread_at_fault = None if self.landing else (residents, row, lane or 0)
            raise EmulationFault(fault)
        key = (instruction.line, kind)
        known = self.faults.get(key)
        if known is not None:
            fault = Fault(
                known.kind, known.kernel, known.line, known.line_text, known.cta, known.thread, known.space,
                known.address, known.sentence, known.count + count, module,
            )  # fmt: skip
        self.faults[key] = fault

    def note_unwritten(self, instruction: Instruction, did: str) -> None:
        """An instruction has moved or multiplied values that nobody wrote, which is no fault by itself."""
        name = ".".join(instruction.name.split(".")[:2])
        self._unwritten.setdefault(name, f"; `{name}` on line {instruction.line} {did}")

    def whence_unwritten(self) -> str:
        """Where values that nobody wrote may have come from, to be said behind a fault; "" where nothing is known."""
        return self._unwritten.get("tcgen05.mma", "") or self._unwritten.get("tcgen05.ld", "")

    def advise(self, rule: str, instruction: Instruction, sentence: str) -> None:
        """Note an advisory once per line and rule."""
        module, line = self.source.place(instruction.line)
        self.advisories.setdefault(
            (instruction.line, rule),
            Advisory(rule, self.program.name, line, self.line_text(instruction.line), sentence, module),
        )


def first_true(mask: NDArray[np.bool_] | np.bool_) -> int:
    """Position of the first true value in a flattened array."""
    return int(np.argmax(mask.reshape(-1)))
