"""Slots of tensor memory are given back behind the last load from them, and not later; earlier is refuted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structures import PROOFS, structure

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.protocol.counting import steps_of


def epilogue(of: sync.Protocol) -> sync.RoleBody:
    return next(s for s in of.body if isinstance(s, sync.RoleBody) and s.role == "epilogue")


def places(of: sync.Protocol) -> tuple[int, int, int]:
    """Where in the epilogue the last load of the sums, their release, and the last store of results are."""
    steps = list(steps_of(epilogue(of).body))
    loads = [i for i, s in enumerate(steps) if isinstance(s, sync.Touch) and s.by == "tcgen05.ld"]
    stores = [i for i, s in enumerate(steps) if isinstance(s, sync.Touch) and (s.pipeline, s.verb) == ("out", "write")]
    (release,) = (i for i, s in enumerate(steps) if isinstance(s, sync.Arrive) and s.barrier.pipeline == "sums")
    return loads[-1], release, stores[-1]


@pytest.mark.parametrize(("of", "early"), [({}, True), ({"outs": 1}, True), ({"split_k": 2}, False)])
def test_sums_are_given_back_behind_their_last_load(of: dict[str, Any], early: bool) -> None:
    """Of tiles that CTAs share, who is not the last stores nothing: there it is given back where its block ends."""
    fixed = {"ctas": "one", "split_k": 1, "stream_k": 0, "launch_control": 0}
    found = structure("blackwell, staged", **(fixed | of))
    load, release, store = places(found)
    assert load < release
    assert (release < store) is early
    assert str(certify(found, PROOFS)).count("proved") == len(found.rings)


def test_a_release_before_the_last_load_is_refuted() -> None:
    found = structure("blackwell, staged", ctas="one", split_k=1, stream_k=0, launch_control=0)
    (arrive,) = (s for s in steps_of(epilogue(found).body) if isinstance(s, sync.Arrive))
    last = [s for s in steps_of(epilogue(found).body) if isinstance(s, sync.Touch) and s.by == "tcgen05.ld"][-1]

    def edited(steps: tuple[sync.Step, ...]) -> tuple[sync.Step, ...]:
        out: list[sync.Step] = []
        for s in steps:
            if s is last:
                out.append(arrive)
            if s is not arrive:
                out.append(replace(s, body=edited(s.body)) if hasattr(s, "body") else s)
        return tuple(out)

    wrong = replace(found, body=edited(found.body))
    assert "refuted: sums of c" in str(certify(wrong, PROOFS))


