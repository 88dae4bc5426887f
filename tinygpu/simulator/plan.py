"""What the engine is given and what comes of it: the plan of one SM, and a run with its busy times and its timeline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tinygpu.program.groups import Groups
from tinygpu.program.statement import Statement
from tinygpu.simulator.stop import Stops

# Units that serve a role, in the order of their rows in a timeline; L2 and DRAM are the SM's shares.
SERVERS = ("tensor", "fma", "alu", "sfu", "issue", "smem", "l2", "dram")
# Units of which every scheduler of an SM has its own part.
PER_SCHEDULER = ("tensor", "fma", "alu", "sfu", "issue")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Work with its times.

    label    what it is
    units    unit of the SM -> seconds
    read_s   (L2, DRAM) seconds of this SM's share, waited for
    write_s  likewise, not waited for
    alone_s  seconds from start to end where nobody else uses the units; latencies follow
    chain_s  latencies that follow the work
    near_s   by how much what it waits for arrives sooner than the plan's latency: what CTAs left in L2 for each other
    """

    label: str
    units: Mapping[str, float]
    read_s: tuple[float, float]
    write_s: tuple[float, float]
    alone_s: float
    chain_s: float
    near_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RolePlan:
    """One role: the tiles that it takes ((r, n): those that leave r when divided by n), and what it does for each.

    stops    its stretches of work, by the statements of the program
    last     stretches behind the last stop
    strides  of a role that takes turns at tiles: pipeline that others fill for every tile -> slots of one tile
    """

    role: str
    share: tuple[int, int]
    stops: Stops[Stretch]
    last: tuple[Stretch, ...] = ()
    strides: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one SM has to do.

    body        of the program that every CTA carries out
    groups      where its roles wait for asynchronous products
    trips       rounds of its statements that go round
    stages      slots of each pipeline
    turns       pipelines without buffers: roles take turns, in their order
    slots       CTAs that it holds at a time
    tiles       per CTA that it runs, in the order of their launch, how many tiles it takes
    latency_s   from the last sector served to its arrival
    persistent  CTAs take tile after tile; the wave of a tile is then its number, else that of its CTA
    answer_s    from the question for another cluster to its answer, where CTAs take each other over; else 0
    last        wave (of CTAs, by their number over `slots`; or of tiles) from which on the last wave has begun
    last_dram   DRAM seconds there, over those elsewhere: fewer SMs share it
    """

    roles: tuple[RolePlan, ...]
    body: tuple[Statement, ...]
    groups: Groups
    trips: Mapping[Statement, int]
    stages: Mapping[str, int]
    turns: frozenset[str]
    slots: int
    tiles: tuple[int, ...]
    latency_s: float
    persistent: bool
    last: int
    last_dram: float
    answer_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time on one row of the timeline.

    row     a unit of SERVERS, or "slot 0 consumer": a place for CTAs, and a role
    kind    "work", "wait" or "copy" (under way in memory)
    """

    row: str
    label: str
    kind: str
    start_s: float
    stop_s: float
    cta: int
    tile: int


@dataclass(slots=True)
class Run:
    """What came out.

    seconds  until the last CTA is done and its stores have drained
    busy_s   seconds that each unit was in use
    roles_s  role -> what it did or waited for -> seconds, over all CTAs
    spans    the first `keep` of the timeline, in the order of their beginning
    drawn_s  until when the spans are all there
    events   how many steps were carried out
    """

    seconds: float = 0.0
    busy_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SERVERS, 0.0))
    roles_s: dict[str, dict[str, float]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    drawn_s: float = math.inf
    events: int = 0
