"""What no machine could be given is refused before any work is done, in one sentence."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinygpu.api.machines import family
from tinygpu.api.problems import Asked, ProblemError, problems
from tinygpu.api.train import Curriculum, train_policy
from tinygpu.api.tune import Effort, Watcher, tune
from tinygpu.cli.app import app
from tinygpu.devices import device
from tinygpu.files import FileError
from tinygpu.ptx.runtime.driver import DriverStatus

SIZES = {"m": 64, "n": 64, "k": 64}


class Silent(Watcher):
    def stage(self, name: str) -> None:
        raise AssertionError(f"{name}: nothing should have begun")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"strategy": "magic"},
            "there is no strategy 'magic'; there are exhaustive, random, annealing, evolutionary, local, surrogate, "
            "rl, branch_and_bound, factored and auto",
        ),
        ({"evaluations": 0}, "a search needs at least 1 evaluation, not 0"),
        ({"seconds": -1.0}, "a search needs more than 0 seconds, not -1"),
        ({"within": -0.5}, "within is a share of the floor, 0.05 for 5 %, not -0.5"),
    ],
)
def test_a_search_that_cannot_be_begins_nothing(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        tune(family("matmul"), Asked(SIZES), device("h200"), Effort(**options), Silent())  # type: ignore[arg-type]
    assert str(refused.value) == sentence


def test_within_is_refused_in_per_cent() -> None:
    words = ["tune", "matmul", "--shape", "m=64,n=64,k=64", "--device", "h200", "--within", "-5"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    said = " ".join(ended.output.replace("│", " ").split())
    assert "--within is in per cent above the roofline's time, 5 or 0.5, not -5" in said


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (SIZES | {"m": 0}, "matmul: the dim m is a whole number from 1 to 2147483647, not 0"),
        ({"m": 64, "n": 64}, "matmul needs the dim k: give m=...,n=...,k=..."),
    ],
)
def test_what_every_machine_of_a_family_says_is_said_once(sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(ProblemError) as refused:
        problems(family("matmul"), Asked(sizes))
    assert str(refused.value) == sentence


def test_a_training_that_cannot_be_makes_no_lesson(tmp_path: Path) -> None:
    def lesson(name: str) -> None:
        raise AssertionError("a lesson was made")

    with pytest.raises(ValueError) as refused:
        train_policy(tmp_path / "p.npz", Curriculum(), steps=-3, on_lesson=lesson)
    assert str(refused.value) == "training needs at least 1 step and more than 0 seconds, not -3 steps"
    with pytest.raises(ValueError) as refused:
        train_policy(tmp_path / "none" / "p.npz", Curriculum(), steps=3, on_lesson=lesson)
    assert str(refused.value) == f"{tmp_path / 'none'} is not a folder, and p.npz would be written there in the end"


def test_a_journal_that_is_a_file_is_refused_before_anything_is_searched(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for name, why in (("taken", "it is a file"), ("taken/below", "Not a directory")):
        with pytest.raises(FileError) as refused:
            tune(family("axpby"), Asked({"n": 64}), device("h200"), Effort(journal=tmp_path / name), Silent())
        assert str(refused.value) == f"{tmp_path / name} cannot be a folder: {why}; give another"
    assert (tmp_path / "taken").read_text() == "mine"


def test_where_no_gpu_is_nothing_is_searched_to_be_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinygpu.api.measured.available", lambda: DriverStatus(False, "the GPU is away"))
    monkeypatch.chdir(tmp_path)
    words = ["tune", "axpby", "--shape", "n=64", "--device", "h200", "--measure", "3"]
    ended = CliRunner().invoke(app, words)
    assert str(ended.exception) == (
        "nothing can be timed here: the GPU is away; `tinygpu bundle` writes kernels for a machine that has the GPU"
    )
    assert not list(tmp_path.iterdir())
