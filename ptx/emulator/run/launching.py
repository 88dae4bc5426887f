"""A launch as the caller gives it, checked: grid, block, cluster, shared memory, and which CTAs to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.source.syntax import Function
from tinygpu.ptx.emulator.state.emulation import Dim3, Launch

# CUDA C++ Programming Guide, "Technical Specifications": threads per block; clusters above 8 CTAs need an opt-in.
_MOST_THREADS = 1024
_MOST_CTAS_PER_CLUSTER = 16


def make_launch(
    function: Function, grid: int | Sequence[int], block: int | Sequence[int], cluster: int | Sequence[int],
    dynamic_smem: int,
) -> Launch:  # fmt: skip
    """The launch of an entry. Refuses what hardware or the kernel's own directives would refuse, by LaunchError."""
    wanted = function.directives.get("reqnctapercluster")
    shape = _dim3(cluster, "cluster")
    if wanted is not None:
        required = cast(Dim3, (*wanted, 1, 1)[:3])
        if shape not in ((1, 1, 1), required):
            raise LaunchError(f"{function.name} requires cluster {required} (.reqnctapercluster), not {shape}")
        shape = required
    launch = Launch(_dim3(grid, "grid"), _dim3(block, "block"), shape, int(dynamic_smem))
    _check_block(function, launch)
    size = launch.cluster_size
    if size > _MOST_CTAS_PER_CLUSTER:
        raise LaunchError(f"cluster {shape} has {size} CTAs, but a cluster has at most {_MOST_CTAS_PER_CLUSTER}")
    most = function.directives.get("maxclusterrank")
    if most is not None and size > most[0]:
        raise LaunchError(f"{function.name} allows {most[0]} CTAs per cluster (.maxclusterrank), not {size}")
    if any(g % c for g, c in zip(launch.grid, shape, strict=True)):
        raise LaunchError(f"grid {launch.grid} is no multiple of cluster {shape} in every dimension")
    return launch


def _dim3(value: int | Sequence[int], what: str) -> Dim3:
    items = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(items) <= 3 or not all(isinstance(v, (int, np.integer)) and v > 0 for v in items):
        raise LaunchError(f"{what} is one to three positive integers, not {value!r}")
    x, y, z = (*(int(v) for v in items), 1, 1)[:3]
    return (x, y, z)


def _check_block(function: Function, launch: Launch) -> None:
    threads = launch.threads_per_cta
    if threads > _MOST_THREADS:
        raise LaunchError(f"block {launch.block} has {threads} threads, but a CTA has at most {_MOST_THREADS}")
    if launch.dynamic_smem_bytes < 0:
        raise LaunchError(f"dynamic_smem is a number of bytes, not {launch.dynamic_smem_bytes}")
    required = function.directives.get("reqntid")
    if required is not None:
        wanted = cast(Dim3, (*required, 1, 1)[:3])
        if wanted != launch.block:
            raise LaunchError(f"{function.name} requires block {wanted} (.reqntid), not {launch.block}")
    limit = function.directives.get("maxntid")
    if limit is not None:
        most = int(np.prod(limit))
        if threads > most:
            raise LaunchError(f"{function.name} allows {most} threads per CTA (.maxntid), not {threads}")


def choose_ctas(ctas: Iterable[int | Sequence[int]] | None, launch: Launch) -> list[Dim3]:
    """Coordinates of the CTAs to run: whole clusters, one after another, each in the order of its ranks.

    ctas  linear numbers or (x, y, z); None takes all
    """
    if ctas is None:
        gx, gy, gz = (g // c for g, c in zip(launch.grid, launch.cluster, strict=True))
        return [cta for n in range(gx * gy * gz) for cta in _mates(launch, (n % gx, n // gx % gy, n // (gx * gy)))]
    chosen = [_cta(item, launch.grid) for item in ctas]
    if len(set(chosen)) != len(chosen):
        raise LaunchError("ctas names a CTA twice")
    if launch.cluster_size == 1:
        return chosen
    clusters = dict.fromkeys(_cluster(launch, cta) for cta in chosen)
    result = [mate for cluster in clusters for mate in _mates(launch, cluster)]
    missing = sorted(set(result) - set(chosen))
    if missing:
        raise LaunchError(
            f"ctas names a part of a cluster: CTA {missing[0]}, which runs together with others, is missing"
        )
    return result


def _cluster(launch: Launch, cta: Dim3) -> Dim3:
    x, y, z = (p // c for p, c in zip(cta, launch.cluster, strict=True))
    return (x, y, z)


def _mates(launch: Launch, cluster: Dim3) -> list[Dim3]:
    cx, cy, cz = launch.cluster
    x, y, z = (p * c for p, c in zip(cluster, launch.cluster, strict=True))
    return [(x + rx, y + ry, z + rz) for rz in range(cz) for ry in range(cy) for rx in range(cx)]


def _cta(item: int | Sequence[int], grid: Dim3) -> Dim3:
    gx, gy, gz = grid
    if isinstance(item, (int, np.integer)):
        number, total = int(item), gx * gy * gz
        if not 0 <= number < total:
            raise LaunchError(f"CTA {number} is not in the grid {grid}, which has {total}")
        return (number % gx, number // gx % gy, number // (gx * gy))
    x, y, z = (*(int(v) for v in item), 0, 0)[:3]
    if not all(0 <= p < g for p, g in zip((x, y, z), grid, strict=True)):
        raise LaunchError(f"CTA {(x, y, z)} is not in the grid {grid}")
    return (x, y, z)
