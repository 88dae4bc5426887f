"""Hypothesis strategies for problems, devices and candidates of any machine; they shrink towards small ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tinygpu.devices import Device, device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.spaces import Space
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing.draws import DEVICES, SIZES, Draw, draw_device, draw_problem


def _drawing(draw: st.DrawFn) -> Draw:
    return lambda options: draw(st.sampled_from(list(options)))


@st.composite
def problems(draw: st.DrawFn, machine: type[Machine], sizes: Sequence[int] = SIZES) -> Problem:
    """Problems of a machine: dims from `sizes`, every dtype, order and option, odd pitches, low alignments.

    Shrinks to dims of 1, the default types and options, rows without gaps and pointers aligned to 16 bytes.
    """
    return draw_problem(machine, _drawing(draw), sizes)


@st.composite
def devices(draw: st.DrawFn, names: Sequence[str] = DEVICES) -> Device:
    """Devices of every generation that machines are emitted for; shrinks to the first name."""
    return draw_device(_drawing(draw), names)


@st.composite
def candidates(
    draw: st.DrawFn,
    machine: type[Machine],
    problem: Problem | None = None,
    on: Device | str = "a100",
    space: MachineSpace | None = None,
) -> Mapping[str, int | str]:
    """Admitted candidates of a machine for one problem on one device; shrinks to the first value of each parameter.

    space  the space, where the caller has built it already
    """
    made = space or build_space(machine, problem or draw(problems(machine)), device(on))
    assume(made.space.size > 0)
    part = draw(st.sampled_from([i for i, s in enumerate(made.space.solutions) if s.size]))
    alone = Space(made.space.name, (made.space.parts[part],))
    point: dict[str, Any] = {}
    for name in made.space.parts[part].names:
        point[name] = draw(st.sampled_from(list(alone.legal_values(point, name))))
    return point
