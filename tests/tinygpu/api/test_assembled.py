"""Searching among assembled candidates, in processes and behind a cache; and what the cache's key depends on."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from tinygpu.api.assembled import AssembledTime, assembled_objective, assembled_time
from tinygpu.api.caching import circumstances, code_digest, source_digest
from tinygpu.api.machines import family
from tinygpu.api.problems import Asked
from tinygpu.api.report import load_run
from tinygpu.api.tune import Effort, tune
from tinygpu.cli.app import app
from tinygpu.devices import device
from tinygpu.language.problem import Problem
from tinygpu.machines.elementwise import Axpby
from tinygpu.search import Evaluation, Point
from tinygpu.search.cache import Cache
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces.build import MachineSpace, build_space

A100 = device("a100")


def space_of(n: int = 5000) -> MachineSpace:
    return build_space(Axpby, Axpby.problem(n=n), A100)


def drawn(space: MachineSpace, count: int) -> Sequence[Point]:
    return space.space.sample(count, np.random.default_rng(4))


# --- the objective ------------------------------------------------------------------------------------------------


def test_an_assembled_candidate_takes_what_is_predicted_of_its_kernel() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    space = space_of()
    # of this machine no layout has conflicts and no candidate spills: what differs is the registers alone
    for point, found in zip(drawn(space, 4), AssembledTime(space)(drawn(space, 4)), strict=True):
        assert found.value is not None
        least = PredictedTime(space)([point])[0].value
        assert least is not None
        assert found.value == pytest.approx(least, rel=0.2)


def test_what_does_not_become_a_kernel_is_a_failure_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygpu.api import assembled
    from tinygpu.ptx.assembling.assembler import AssemblerError, Fault
    from tinygpu.ptx.lowering.context import LoweringError

    space = space_of()
    (point,) = drawn(space, 1)

    def refuse(error: Exception) -> object:
        def raised(*words: object, **more: object) -> object:
            raise error

        return raised

    monkeypatch.setattr(assembled, "assemble", refuse(AssemblerError("sm_80", (Fault("no such thing"),))))
    (found,) = AssembledTime(space)([point])
    assert found.failure is not None
    assert found.failure.kind == "assembler"
    assert "no such thing" in found.failure.sentence
    monkeypatch.setattr(assembled, "lower", refuse(LoweringError("cannot be said in PTX")))
    (found,) = AssembledTime(space)([point])
    assert found.failure is not None
    assert found.failure.kind == "lowering"


@pytest.mark.end_to_end
def test_processes_and_the_cache_say_what_this_process_says(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    space = space_of()
    points = drawn(space, 3)
    here = assembled_time("axpby", "Axpby", space.problem, A100)(points)
    for _ in range(2):
        with assembled_objective("axpby", space, processes=2, cache=tmp_path / "cache") as objective:
            assert list(objective(points)) == here
    with Cache(tmp_path / "cache") as cache:
        assert len(cache) == len({frozenset(p.items()) for p in points})
    # the second time it came from the cache: one that holds something else is believed
    with Cache(tmp_path / "other") as cache:
        from importlib import metadata

        from tinygpu.api.assembled import VALUE

        where = circumstances(space, VALUE, assembler=metadata.version("nvidia-nvjitlink"))
        for point in points:
            cache.keep(where, point, Evaluation(7.0))
    with assembled_objective("axpby", space, processes=2, cache=tmp_path / "other") as objective:
        assert [e.value for e in objective(points)] == [7.0] * 3


@pytest.mark.end_to_end
def test_tuning_among_assembled_candidates(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    words = ["tune", "axpby", "--shape", "n=3000", "--device", "a100", "--keep", "1", "--strategy", "random"]
    words += ["--evaluations", "6", "--processes", "2", "--cache", str(tmp_path / "cache"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--journal", str(tmp_path / "journal")])
    assert done.exit_code == 0, done.output
    (part,) = load_run(tmp_path / "out").searched
    assert part.tried == 6
    assert (tmp_path / "journal" / "Axpby.jsonl").read_text().count("\n") == 7
    with Cache(tmp_path / "cache") as cache:
        assert len(cache) == 6


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"processes": -1}, "a search works in 1 process or more, or predicts with 0, not -1"),
        (
            {"cache": Path("cache")},
            "a cache keeps assembled candidates, and 0 processes assemble none; predictions need no cache",
        ),
    ],
)
def test_what_is_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        tune(family("axpby"), Asked({"n": 3000}), A100, Effort(evaluations=3, **arguments))
    assert str(refused.value) == sentence


# --- the key of a candidate ---------------------------------------------------------------------------------------


def test_circumstances_change_with_what_they_are_made_of() -> None:
    space = space_of()
    known = circumstances(space, "predicted seconds")
    assert circumstances(space_of(), "predicted seconds") == known
    problem: Problem = Axpby.problem(n=5001)
    others = [
        circumstances(build_space(Axpby, problem, A100), "predicted seconds"),
        circumstances(build_space(Axpby, space.problem, device("h100")), "predicted seconds"),
        circumstances(space, "measured seconds"),
        circumstances(space, "predicted seconds", driver="580.1, NVIDIA A100"),
        circumstances(space, "predicted seconds", assembler="13.0"),
    ]
    keys = {c.key({"a": 1}) for c in (known, *others)}
    assert len(keys) == 6


def test_a_device_with_another_figure_is_another_circumstance() -> None:
    space = space_of()
    figure = dataclasses.replace(A100.given("sm_count"), value=A100.sm_count - 1)
    other = A100.with_figures({"sm_count": figure}, A100.name)
    assert other.name == A100.name
    changed = circumstances(build_space(Axpby, space.problem, other), "predicted seconds")
    assert changed != circumstances(space, "predicted seconds")


MACHINE = """
from tinygpu.machines.elementwise import Axpby


class Mine(Axpby):
    '''One of these.'''
"""


def test_the_source_of_a_machine_counts_and_that_of_what_it_is_made_from(tmp_path: Path) -> None:
    def load(name: str, text: str) -> type:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return family(f"{path}:Mine").machines[0]

    one, same, other = load("one", MACHINE), load("two", MACHINE), load("three", MACHINE + "# longer\n")
    assert source_digest(one) == source_digest(same)
    assert source_digest(one) != source_digest(other)
    assert source_digest(one) != source_digest(Axpby)
    for name in ("one", "two", "three"):
        sys.modules.pop(f"tinygpu_user_{name}", ModuleType("gone"))


@pytest.mark.parametrize("room", ["tinygpu.language.machine", "tinygpu.ptx.lowering.lower", "tinygpu.search.predicted"])
def test_the_code_of_every_room_counts(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    path = Path(str(importlib.import_module(room).__file__))
    before, read = code_digest(), Path.read_bytes
    assert code_digest() == before
    monkeypatch.setattr(Path, "read_bytes", lambda p: read(p) + b"#" if p == path else read(p))
    assert code_digest() != before
