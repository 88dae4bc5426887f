"""Machines that ship, that a page shows, or that stand for a user's pass `tinygpu check` with default options.

All of them, in every row; `.ci/run` tries another part with each commit, and leaves what third parties declare to the
wheel, which checks some of it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_sums import RowSums

from tinygpu.api.machines import PLANS, SHIPPED, family
from tinygpu.language import Dim, Input, Machine, Option, Output, blocked, maximum
from tinygpu.ptx import isa
from tinygpu.testing import run_check

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/guide.md", "docs/recipes.md", "docs/language.md")
OF_USERS = ("many_axes", "test_operations_of_a_user", "test_operations_over_data_and_time", "windowed_attention")
FILES = [ROOT / f"tests/machines/{name}.py" for name in OF_USERS]
THIRD_PARTIES = sorted((ROOT / "tests/thirdparty").glob("*.py"))


def sources(page: str) -> Iterator[tuple[str, str]]:
    """(name, Python) of the machines of a page: of saved files, and of classes that the page declares on its way."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    known = "from tinygpu.language import *\nfrom tinygpu.ptx import isa\n"
    for block in blocks:
        named = re.match(r"# file: (\S+)\.py\n", block)
        shown = re.match(r"class (\w+)\(Machine\):", block)
        if named:
            yield named[1], block
        elif shown:
            yield shown[1].lower(), known + block


def machines(path: Path) -> list[type[Machine]]:
    """The machines that a file declares."""
    name = f"passing_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found = [m for m in vars(module).values() if isinstance(m, type) and issubclass(m, Machine) and m is not Machine]
    return [m for m in found if m.__module__ in (name, "tinygpu.machines.elementwise")]


# A row that is a little longer than its tile mostly has its largest element within: what is refused works then.
BY_CHANCE = {"arg_max": "the constraint 'whole' (a row fits into one tile) is too tight"}


def passes(machine: type[Machine], name: str = "") -> None:
    report = run_check(machine)
    wrong = [f for f in report.failures if not f.sentence.startswith(BY_CHANCE.get(name, "\n"))]
    assert not wrong, str(report)
    assert not report.untried, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHIPPED, *PLANS])
def test_a_machine_that_ships_passes(name: str) -> None:
    (machine,) = family(name).machines
    passes(machine, name)


def all_pass(path: Path) -> None:
    listed = machines(path)
    assert listed
    for machine in listed:
        passes(machine, path.stem)


@pytest.mark.slow
@pytest.mark.parametrize("path", THIRD_PARTIES, ids=lambda p: p.stem)
def test_what_third_parties_declare_passes(path: Path) -> None:
    all_pass(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_machines_of_a_user_pass(path: Path) -> None:
    all_pass(path)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "name"), [(page, name) for page in PAGES for name, _ in sources(page)])
def test_the_machines_of_a_page_pass(page: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(dict(sources(page))[name])
    listed = machines(path)
    assert listed
    for machine in listed:
        passes(machine, name)


class Doubled(Machine):
    """y = x, of twice as many elements as the problem says: no size of 1 follows from any other"""

    half = Dim()
    n = Dim(follows=lambda half: 2 * half)
    x, y = Input("f32", n), Output("f32", n)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))
            p.store(self.st, self.y.tile(i, shape=(32,)), x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@pytest.mark.end_to_end
def test_a_machine_with_a_dim_that_is_never_1_passes() -> None:
    passes(Doubled)


def test_counts_are_compared_where_results_begin_anywhere_in_a_sector() -> None:
    report = run_check(RowSums, problems=1, candidates=2, tiers=(3,))
    assert report.ok, str(report)
    assert not report.untried, str(report)


class Reaching(Machine):
    """y[i] = the sum of w[c] * x[i + r - pad], of windows that begin before x, and anywhere in a sector"""

    n, r, k = Dim(), Dim(), Dim()
    pad = Option(2, 1)
    m = Dim(follows=lambda n, r, pad: n + 2 * pad - r + 1)
    x, w, y = Input("f32", n), Input("f32", k), Output("f32", m)
    ld, st, single, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.LdGlobalReadOnly(1), isa.arithmetic("f32")
    exact = False

    def program(self, p: Any) -> None:
        who = blocked((32,), threads=32)
        with p.grid((self.m, 32)) as (i,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loops((self.r, 1), (self.k, 1)) as (r, c):
                x = p.load(self.ld, self.x.tile(i + r - self.pad, shape=(32,)), who)
                total += x * p.load(self.single, self.w.tile(c, shape=(1,)), who.reduced(0))
            p.store(self.st, self.y.tile(i, shape=(32,)), total)

    @staticmethod
    def reference(x: Any, w: Any, r: int, pad: int) -> Any:
        wide = np.concatenate([np.zeros(pad), x, np.zeros(pad)])
        return sum(wide[t : len(wide) - r + 1 + t] for t in range(r)) * w.sum()


class Shared(Machine):
    """y = the sum of all of x, of which two CTAs always have a part"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    ld, st, take = isa.LdGlobal(1), isa.StGlobal(1), isa.LdGlobal(1)
    add, shuffle = isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        who = blocked((1, 32), threads=32)
        with p.grid((self.m, 1), slices=2) as (i,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.n, step=32, divided=True) as j:
                total += p.load(self.ld, self.x.tile(i, j, shape=(1, 32)), who)
            own = p.reduce(self.add, total, axis=1, by=self.shuffle)
            with p.fix_up(self.add, self.st, self.take, own) as found:
                p.store(self.st, self.y.column(i, 1), found)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


@pytest.mark.parametrize(("machine", "tried"), [(Reaching, True), (Shared, False)], ids=lambda v: str(v))
def test_counts_are_tried_of_windows_that_reach_beyond_and_there_are_none_of_shared_tiles(
    machine: type[Machine], tried: bool
) -> None:
    report = run_check(machine, problems=1, candidates=2, tiers=(3,))
    assert report.ok, str(report)
    assert [bool(r.tried) for r in report.rows] == [tried, tried]
    if not tried:
        assert "no CTAs that have a tile to themselves" in str(report)


class Behind(Machine):
    """y = x + the sums of all tiles of 32 that lie 256 before: the first tiles have none"""

    m = Dim()
    x, y = Input("f32", m), Output("f32", m)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        who = blocked((32,), threads=32)
        with p.grid((self.m, 32)) as (i,), p.role("all", warps=1):
            total = p.load(self.ld, self.x.tile(i, shape=(32,)), who)
            with p.loop(maximum(i - 256, 0), step=32) as j:
                total += p.load(self.ld, self.x.tile(j, shape=(32,)), who)
            p.store(self.st, self.y.tile(i, shape=(32,)), total)

    @staticmethod
    def reference(x: Any) -> Any:
        rows = np.zeros(-(-len(x) // 32) * 32, x.dtype)
        rows[: len(x)] = x
        tiles = rows.reshape(-1, 32)
        before = [tiles[: max(k - 8, 0)].sum(axis=0) for k in range(len(tiles))]
        return (tiles + np.array(before)).reshape(-1)[: len(x)]


def test_counts_are_not_compared_where_tiles_have_no_round() -> None:
    report = run_check(Behind, problems=4, candidates=2, tiers=(3,))
    assert report.ok, str(report)
