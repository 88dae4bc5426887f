"""Windows of tensors: parts of batches, rows and columns, and what is said of those that do not exist."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, DType, Input, Machine, Output, Param, blocked, dtype
from tinygpu.language.bound_tensor import BoundTensor
from tinygpu.language.memories import RMEM
from tinygpu.language.partition import expr
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.lower import lower
from tinygpu.spaces.build import build_space

F32: DType = dtype("f32")


def tensor(*dims: str) -> BoundTensor:
    return BoundTensor(Tensor("x", F32, dims, "in"))


def test_a_part_of_a_batch_has_the_remaining_axes() -> None:
    tile = tensor("b", "m", "n").at(3).tile(4, 5, shape=(2, 8))
    assert str(tile) == "x[3, 4:+2, 5:+8]"
    assert tile.axes == (1, 2)
    assert tile.contiguous == 1
    assert [(axis, int(place)) for axis, place in tile.fixed] == [(0, 3)]


def test_parts_of_parts_are_parts() -> None:
    once, twice = tensor("a", "b", "m", "n").at(1, 2), tensor("a", "b", "m", "n").at(1).at(2)
    assert str(once.tile(0, 0, shape=(2, 2))) == str(twice.tile(0, 0, shape=(2, 2))) == "x[1, 2, 0:+2, 0:+2]"


def test_a_row_of_a_batch_stands_for_every_row() -> None:
    tile = tensor("b", "n").at(7).row(0, 8)
    assert tile.axes == (None, 1)
    assert str(tile) == "x[7, 0:+1, 0:+8]"


def test_a_window_of_a_part_stays_in_it() -> None:
    tile = tensor("b", "m", "n").at(3).tile(0, 0, shape=(8, 8)).window((2, 4), (2, 2))
    assert str(tile) == "x[3, 2:+2, 4:+2]"
    assert str(tile.T) == "x[3, 4:+2, 2:+2]"


def test_all_of_a_value_in_registers_is_a_window_of_it() -> None:
    who = blocked((4, 8), threads=32)
    value = Tile("v1", RMEM, F32, who.shape, (expr(0), expr(0)), partition=who)
    whole = value.window((0, 0), (4, 8))
    assert (whole.name, whole.partition, str(whole)) == ("v1", who, "%v1")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda x: x.at(), "x has 3 dims; at() takes 1 coordinate or more and leaves a dim, not 0"),
        (lambda x: x.at(1, 2, 3), "x has 3 dims; at() takes 1 coordinate or more and leaves a dim, not 3"),
        (lambda x: x.at(1, 2).at(1), "x.at(...) has 1 dim; at() takes 1 coordinate or more and leaves a dim, not 1"),
        (lambda x: x.at(1).tile(0, shape=(1,)), "x.at(...) has 2 dims; the window gives 1 offset and 1 extent"),
        (lambda x: x.at(1).row(0, 4), "x.at(...) has 2 dims; row and column take a tensor with one"),
    ],
)
def test_windows_that_do_not_exist(make: Any, sentence: str) -> None:
    with pytest.raises(DeclarationError) as error:
        make(tensor("b", "m", "n"))
    assert str(error.value) == sentence


def test_parts_of_batches_are_saved() -> None:
    """Inside a whole program: the batched matmul of the lowering's tests comes back and lowers to the same bytes."""

    class CopyBatch(Machine):
        """y = x, part by part"""

        b, n = Dim(), Dim()
        x, y = Input("f32", b, n), Output("f32", b, n)
        warps = Param(1, 2)
        ld, st = isa.LdGlobal(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            shape = (32 * self.warps,)
            who = blocked(shape, threads=shape[0])
            with p.grid((self.b, 1), (self.n, shape[0])) as (b, i), p.role("all", warps=self.warps):
                p.store(
                    self.st, self.y.at(b).tile(i, shape=shape), p.load(self.ld, self.x.at(b).tile(i, shape=shape), who)
                )

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    problem = CopyBatch.problem(b=3, n=100)
    space = build_space(CopyBatch, problem, device("a100"))
    point = space.space.at(0)
    filled = space.program(point)
    loaded = load_program(json.loads(json.dumps(save_program(filled))))
    assert str(loaded) == str(filled)
    assert "x[tile0, 32*tile1:+32]" in str(filled)
    assert lower(loaded, problem, point) == lower(filled, problem, point)
