"""How warps touch a tile in shared memory, in coordinates of the tile: the solver's question before it has a layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.banks import BANK_BYTES, MATRIX_ROW_BYTES, MATRIX_ROWS, count_wavefronts, matrix_wavefronts, phases
from tinygpu.solver.smem_layout import SmemLayout

TileKind = Literal["ldst", "ldmatrix", "cp.async"]
KINDS: tuple[TileKind, ...] = ("ldst", "ldmatrix", "cp.async")


@dataclass(frozen=True, slots=True, eq=False)
class TileAccess:
    """Warp instructions that touch one tile in the same way.

    name         in the user's words: "row store", "column read"
    lanes        (instances, 32, 2) row and first column byte of each lane, for representative warp instructions;
                 (instances, 8, 2) the eight rows of 16 bytes of each 8x8 matrix for ldmatrix and stmatrix. Row -1
                 marks an inactive lane
    width_bytes  bytes per lane: 1, 2, 4, 8 or 16 (16 for ldmatrix; 4, 8 or 16 for cp.async)
    kind         "ldst" (ld.shared, st.shared), "ldmatrix" (also stmatrix) or "cp.async"
    weight       how often each of the instances runs, compared with the other accesses
    """

    name: str
    lanes: NDArray[np.int64]
    width_bytes: int
    kind: TileKind = "ldst"
    weight: int = 1

    def __post_init__(self) -> None:
        where = f"[access {self.name!r}]"
        if self.kind not in KINDS:
            raise ValueError(f"{where} the kind is one of {', '.join(KINDS)}, not {self.kind!r}")
        allowed = {"ldst": (1, 2, 4, 8, 16), "ldmatrix": (MATRIX_ROW_BYTES,), "cp.async": (4, 8, 16)}[self.kind]
        if self.width_bytes not in allowed:
            wanted = " or ".join(str(width) for width in allowed)
            raise ValueError(f"{where} {self.kind} moves {wanted} bytes per lane, not {self.width_bytes}")
        if self.weight < 1:
            raise ValueError(f"{where} the weight must be a positive integer, not {self.weight}")
        lanes = np.array(self.lanes)
        count = MATRIX_ROWS if self.kind == "ldmatrix" else 32
        if lanes.ndim != 3 or lanes.shape[0] < 1 or lanes.shape[1:] != (count, 2):
            raise ValueError(f"{where} coordinates have shape (instances, {count}, 2), not {lanes.shape}")
        if lanes.dtype.kind not in "iu":
            raise ValueError(f"{where} coordinates are whole rows and bytes, not {lanes.dtype}")
        lanes = lanes.astype(np.int64)
        if np.any(lanes[..., 0] < -1) or np.any(lanes[lanes[..., 0] >= 0] < 0):
            raise ValueError(f"{where} rows and columns are non-negative; row -1 marks an inactive lane")
        columns = lanes[..., 1][lanes[..., 0] >= 0]
        if np.any(columns % self.width_bytes):
            wrong = columns[columns % self.width_bytes != 0][0]
            raise ValueError(
                f"{where} column byte {wrong} is not a multiple of the {self.width_bytes} bytes that a lane moves"
            )
        lanes.setflags(write=False)
        object.__setattr__(self, "lanes", lanes)

    @property
    def instances(self) -> int:
        """Warp instructions listed (8x8 matrices for ldmatrix)."""
        return int(self.lanes.shape[0])

    @property
    def unit_bytes(self) -> int:
        """What the banks serve at once for a lane: its width, a word at least."""
        return max(self.width_bytes, BANK_BYTES)

    def phase_lanes(self) -> NDArray[np.int64]:
        """Coordinates split into phases, shape (instances * phases, lanes of a phase, 2)."""
        count = MATRIX_ROWS if self.kind == "ldmatrix" else 32 // phases(self.width_bytes)
        return self.lanes.reshape(-1, count, 2)

    def ideal(self) -> int:
        """Wavefronts of all instances together if no bank conflict is met: the phases with an active lane."""
        return int((self.phase_lanes()[..., 0] >= 0).any(axis=1).sum())

    def wavefronts(self, layout: SmemLayout) -> int:
        """Wavefronts of all instances together under a layout, counted lane by lane."""
        return self.count(self.addresses(layout))

    def count(self, addresses: NDArray[np.int64]) -> int:
        """Wavefronts of all instances together at these byte addresses, shape (instances, lanes), -1 inactive."""
        if self.kind == "ldmatrix":
            return int(matrix_wavefronts(addresses).sum())
        return int(count_wavefronts(addresses, self.width_bytes).sum())

    def addresses(self, layout: SmemLayout) -> NDArray[np.int64]:
        """Byte addresses under a layout, shape (instances, lanes); -1 for inactive lanes."""
        active = self.lanes[..., 0] >= 0
        rows, columns = np.where(active, self.lanes[..., 0], 0), np.where(active, self.lanes[..., 1], 0)
        return np.where(active, layout.address(rows, columns), -1)

    def __repr__(self) -> str:
        return (
            f"TileAccess({self.name!r}, <{self.instances} instances>, {self.width_bytes}, {self.kind!r}, {self.weight})"
        )
