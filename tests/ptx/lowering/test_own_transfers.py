"""Stores that combine and copies of rows, as instructions of a user's own: what they ask of programs and problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from atomic_sum import AddGlobal, ColumnSum
from bulk_rows import BulkLoad

from tinygpu.devices import device
from tinygpu.language import (
    SMEM,
    DeclarationError,
    Dim,
    InOut,
    Input,
    Machine,
    Output,
    blocked,
)
from tinygpu.ptx import isa
from tinygpu.spaces.build import build_space

# --- stores that combine ------------------------------------------------------------------------------------------


def added(kind: str = "f32", declared: Any = InOut, more: Any = None, **facts: Any) -> type[Machine]:
    """y += x, by a store that adds."""
    name = kind

    class Added(Machine):
        """y += x"""

        n = Dim()
        x, y = Input(name, n), declared(name, n)
        ld, st = isa.LdGlobal(1), isa.StGlobal(1)
        red = kind_of_store(**facts)

        def program(self, p: Any) -> None:
            who = blocked((64,), threads=32)
            with p.grid((self.n, 64)) as (i,), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, shape=(64,)), who)
                p.store(self.red, self.y.tile(i, shape=(64,)), x)
                if more is not None:
                    more(self, p, i, who, x)

        @staticmethod
        def reference(x: Any, y: Any = 0) -> Any:
            return x + y

    return Added


def kind_of_store(**facts: Any) -> Any:
    own = dataclass(frozen=True, eq=False)(type("Own", (AddGlobal,), {"label": "own", **facts, "__module__": __name__}))
    return own()


def refused(**made: Any) -> str:
    with pytest.raises(DeclarationError) as error:
        added(**made)
    return str(error.value)


def test_what_is_combined_into_is_there_before_and_is_nobody_elses() -> None:
    added()
    assert refused(declared=Output) == (
        "Added.program: red (own) combines with what y holds, which is declared Output; declare it InOut"
    )
    assert refused(kind="f16") == "Added.program: red (own) moves f32 or s32, and y is f16"
    assert refused(writes=SMEM).startswith(
        "Added.program: red (own) writes SMEM, but the result belongs in GMEM: an instruction from RMEM to GMEM is "
        "missing"
    )
    alone = "give what else is read or written a tensor of its own"
    assert refused(more=lambda m, p, i, who, x: p.store(m.st, m.y.tile(i, shape=(64,)), x)) == (
        f"Added.program: red combines into y what CTAs store in any order, and st touches y too; {alone}"
    )


def test_a_program_that_combines_does_so_when_it_is_run() -> None:
    problem = ColumnSum.problem(m=30, n=130)
    space = build_space(ColumnSum, problem, device("a100"))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(4)))
    x = np.arange(30 * 130, dtype=np.float32).reshape(30, 130) % 7
    y = np.arange(130, dtype=np.float32)
    ran = space.program(point).run({"x": x, "y": y})
    assert np.array_equal(ran["y"], y + x.sum(axis=0))


# --- rows that are moved one by one -------------------------------------------------------------------------------


def moved(
    rows: Any = lambda self, p, i, j: self.x.tile(i, j, shape=(4, 64)), step: int = 64, **stage: Any
) -> type[Machine]:
    """y = x, by rows through a ring."""
    class Moved(Machine):
        """y = x"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m, n)
        bring, get, st = BulkLoad(), isa.LdShared(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            layout = p.smem("f32", (4, 64), **stage)
            with p.grid((self.m, 4)) as (i,), p.pipeline("ring", 2, x=layout) as ring:
                with p.role("bring", warps=1), p.loop(self.n, step=step) as j, ring.produce() as s:
                    p.copy(self.bring, rows(self, p, i, j), s.x)
                with p.role("store", warps=1, first=1), p.loop(self.n, step=step) as j, ring.consume() as s:
                    x = p.load(self.get, s.x, blocked((4, 64), threads=32))
                    p.store(self.st, self.y.tile(i, j, shape=(4, 64)), x)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Moved


EXIST = "Moved.program: bring (cp.async.bulk) moves rows that exist, and the windows of x along axis"


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"rows": lambda self, p, i, j: self.x.tile(i, j + 32, shape=(4, 64))},
         f"{EXIST} 1, which begin at 64*i1 + 32, do not follow one another over n"),
        ({"step": 32}, f"{EXIST} 1, which begin at 32*i1, do not follow one another over n"),
        ({"rows": lambda self, p, i, j: self.x.tile(j // 16, j, shape=(4, 64))},
         f"{EXIST} 0, which begin at 4*i1, do not follow one another over m"),
        ({"swizzle": 128}, "cp.async.bulk leaves rows as they are: ring.x has neither swizzle= nor layout="),
        ({"contiguous": 0}, "ring.x has rows along another axis than x: cp.async.bulk moves rows"),
    ],
)  # fmt: skip
def test_rows_that_may_not_exist_or_lie_otherwise_are_refused(made: dict[str, Any], sentence: str) -> None:
    with pytest.raises((DeclarationError, ValueError)) as error:
        moved(**made)
    assert str(error.value).endswith(sentence)


@pytest.mark.parametrize(
    ("dims", "ld", "why"),
    [
        ({"m": 6, "n": 128}, 128, "whole windows lie within x, of which cp.async.bulk moves rows; 6 mod 4 = 2 != 0"),
        ({"m": 8, "n": 96}, 128, "whole windows lie within x, of which cp.async.bulk moves rows; 96 mod 64 = 32 != 0"),
        ({"m": 8, "n": 128}, 130, "are multiples of 16 bytes"),
    ],
)
def test_problems_of_which_rows_do_not_exist_are_out(dims: dict[str, int], ld: int, why: str) -> None:
    made = moved()
    space = build_space(made, made.problem(**dims, lds={"x": ld}), device("h100")).space
    assert not space.size
    assert why in " ".join(v.sentence for v in space.explain({}))
