"""Solving for unknown layouts of shared memory: importing this loads no solver, the first hard question does."""

from tinygpu.solver.smem import SolverCache, SolverDisagreement, solve_smem
from tinygpu.solver.smem_layout import SmemLayout
from tinygpu.solver.solution import AccessResult, Solution
from tinygpu.solver.tile_access import TileAccess

__all__ = [
    "AccessResult",
    "SmemLayout",
    "Solution",
    "SolverCache",
    "SolverDisagreement",
    "TileAccess",
    "solve_smem",
]
