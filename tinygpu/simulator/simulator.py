"""The simulator of a machine's candidates: from a Space and a point to a Simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tinygpu.cost.predictor import Launch
from tinygpu.simulator.script import Script, script
from tinygpu.simulator.simulate import Simulation, simulate
from tinygpu.spaces.build import MachineSpace


@dataclass(frozen=True, slots=True, eq=False)
class Simulator:
    """Simulates candidates of one space; the script of a structure is written once.

    >>> from tinygpu.devices import device
    >>> from tinygpu.machines.elementwise import Axpby
    >>> from tinygpu.spaces.build import build_space
    >>> space = build_space(Axpby, Axpby.problem(n=1 << 24), device("a100"))
    >>> simulation = Simulator(space).simulate(space.space.at(0))
    >>> simulation.busiest
    'dram'
    """

    space: MachineSpace
    scripts: dict[int, Script] = field(default_factory=dict)

    def script(self, index: int) -> Script:
        """The script of one structure."""
        if index not in self.scripts:
            counts = self.space.counts(index)
            self.scripts[index] = script(counts.program, counts.heuristics)
        return self.scripts[index]

    def simulate(
        self,
        point: Mapping[str, int | str],
        *,
        extra_wavefronts: float = 0.0,
        registers: int | None = None,
        launch: Launch = "graph",
        keep: int = 0,
    ) -> Simulation:
        """One candidate, with what is known of it beyond the counts.

        extra_wavefronts  per main-loop round, from bank conflicts that the best layout leaves
        registers         per thread, as the assembler reports them
        keep              spans of the timeline to keep
        """
        index = self.space.structure_index(point)
        values = {**self.space.environment, **{a: int(point[a]) for a in self.space.traces[index].axes}}
        demand = self.space.counts(index).demand(values, self.space.device, extra_wavefronts)
        if registers is not None:
            demand = replace(demand, registers_per_thread=registers)
        return simulate(
            self.space.device,
            self.script(index),
            demand,
            values,
            extra_wavefronts=extra_wavefronts,
            launch=launch,
            keep=keep,
        )


__all__ = ["Simulator"]
