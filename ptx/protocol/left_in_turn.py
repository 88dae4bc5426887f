"""What holds between two uses of a pipeline whose slots are filled and drained in turn, one behind the other.

The register r has the slot whose turn it is. It is free: nobody reads it, and bulk copies out of it have been waited
for. Of the slots before it they may be under way; then at least as many groups were closed since as there are slots
between it and r, so that a wait that leaves n groups under way is over for those that lie farther back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3


def left_in_turn(
    register: str, slot: Any, stages: Any, agents: list[str]
) -> dict[str, Callable[[dict[str, Any], Any], Any]]:
    """Sentences about a state and a round, by name.

    slot, stages  that is looked at, and how many there are: terms of Z3
    agents        that read slots after the threads have issued it
    """

    def ranged(s: dict[str, Any], c: Any) -> Any:
        return z3.And(s[register] >= 0, s[register] < stages)

    def since(agent: str, s: dict[str, Any], c: Any) -> Any:
        behind = s[register] - 1 - slot
        between = z3.If(behind >= 0, behind, behind + stages)
        return z3.Implies(s[f"leaving to {agent}"], s[f"closed of {agent}"] >= between)

    def free(name: str, s: dict[str, Any], c: Any) -> Any:
        return z3.Implies(slot == s[register], z3.Not(s[name]))

    out: dict[str, Callable[[dict[str, Any], Any], Any]] = {f"{register} is a slot": ranged}
    out |= {f"{agent} has left slots before {register} in turn": partial(since, agent) for agent in agents}
    leaving = [f"leaving to {agent}" for agent in agents]
    return out | {f"{register}: not {name}": partial(free, name) for name in ("read", *leaving)}
