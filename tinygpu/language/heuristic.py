"""What a machine is charged for: costs of the predictor by name, and costs of the machine's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tinygpu.expressions import Expr, Operand

if TYPE_CHECKING:
    from tinygpu.program.statement import Statement

# What the predictor charges for; a machine that leaves one out is predicted as if it had no such cost.
HEURISTICS = ("coalescing", "bank conflicts", "occupancy", "locality", "L1")

# What a cost of one's own may add to: work by the unit that does it, and latencies that a CTA waits for in series
# (`tinygpu.cost.demand`, which says what each counts).
WORK = (
    "tensor_flops", "idle_flops", "fma_flops", "alu_ops", "sfu_ops", "warp_instructions", "smem_load_wavefronts",
    "smem_store_wavefronts", "l1_wavefronts", "sectors_read", "sectors_written", "accesses_read", "accesses_written",
    "accesses_to_one",
)  # fmt: skip
WAITS = ("barriers", "smem_loads", "mmas", "fmas", "sfus", "global_loads", "l2_trips")


@dataclass(frozen=True, eq=False)
class Heuristic:
    """A cost of a machine's own, beside what the predictor counts: listed in `heuristics`, it decides what is best.

    name  in listings and messages
    """

    name: ClassVar[str] = ""

    def costs(self, s: Statement, warps: Expr) -> Mapping[str, Operand]:
        """What one execution of a statement asks for besides, of one CTA: amounts by names of WORK and WAITS.

        The amounts are numbers or expressions over parameters, dims, tensor facts and figures of the device
        (`symbol("device.sm_count")`), zero or more.

        s      a statement of the traced program, with `instructions`, `reads` and `writes`
        warps  of the role that executes it
        """
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name or type(self).__name__
