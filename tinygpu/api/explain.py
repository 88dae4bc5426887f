"""Explain: why a point is out of a space, with the numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tinygpu.spaces.built import BuiltSpace


def explain(space: BuiltSpace, point: Mapping[str, int | str]) -> tuple[str, ...]:
    """Why a point is out, with the numbers; empty when it is in.

    Values that are left open are chosen such that the point breaks as little as possible.
    """
    broken = space.space.explain(point)
    domains = [part.domains() for part in space.space.parts]
    offered = any(all(n in d and v in d[n] for n, v in point.items()) for d in domains)
    if not broken or not offered or all(point.keys() == d.keys() for d in domains):
        return (*[v.sentence for v in broken], *(space.written([v.constraint for v in broken]) if broken else ()))
    nearest = space.space.restrict(point).nearest()
    chosen = ", ".join(f"{n}={v}" for n, v in nearest.point.items() if n not in point)
    places = space.written([v.constraint for v in nearest.violations])
    return (*[v.sentence for v in nearest.violations], *places, f"the nearest completion has {chosen}")
