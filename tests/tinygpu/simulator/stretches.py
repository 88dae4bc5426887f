"""What a role carries out of a program: its stretches, each with how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from tinygpu.program.statement import Statement
from tinygpu.simulator.stop import Stops

T = TypeVar("T")


def stretches(
    body: tuple[Statement, ...], stops: Stops[T], trips: Mapping[Statement, float], times: float = 1
) -> Iterator[tuple[T, float]]:
    """Every stretch of a body, with how often it is carried out where the body is `times` times."""
    for s in body:
        if (stop := stops.get(s)) is None:
            continue
        rounds = times * trips.get(s, 1)
        yield from ((stretch, times) for stretch in stop.before)
        yield from ((stretch, rounds) for stretch in stop.copies)
        for inner, end in zip(stop.bodies, stop.ends, strict=True):
            yield from stretches(inner.statements, stops, trips, rounds)
            yield from ((stretch, rounds) for stretch in end)
        yield from ((stretch, rounds) for stretch in stop.begun)
