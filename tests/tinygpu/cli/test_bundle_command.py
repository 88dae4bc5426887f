"""From a search on this machine to times of another and back: tinygpu bundle, the worker, tinygpu tune --results."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tinygpu.api.bundle import bundle
from tinygpu.api.machines import Family, family
from tinygpu.api.measured import measured_objective, tune_by_results
from tinygpu.api.problems import Asked
from tinygpu.cli.app import app
from tinygpu.devices import device
from tinygpu.files import FileError
from tinygpu.language import Input, Machine, Output, Param
from tinygpu.machines.elementwise import Axpby
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.measuring.bundle import read_bundle
from tinygpu.ptx.measuring.reference import CannotRecord
from tinygpu.search.measured import MeasuredTime, load_results
from tinygpu.search.minimize import minimize
from tinygpu.spaces.build import build_space

pytestmark = pytest.mark.end_to_end

pytest.importorskip("cuda.bindings.driver")
FAKE = Path(__file__).parents[2] / "ptx" / "fake"
ASKED = ["--shape", "n=3000", "--device", "h200"]


def tinygpu(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return re.sub(r"\s+", " ", done.output)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*[p for p in sys.path if p], str(FAKE)])}


COMMAND = (sys.executable, "-m", "tinygpu.ptx.measuring", "--driver", "fake_cuda", "--samples", "8")


def work(path: Path) -> Path:
    out = path.with_suffix(".jsonl")
    done = subprocess.run(
        [*COMMAND, str(path), "-o", str(out)], env=environment(), cwd=path.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle without machine code, and its results, in which the kernel called k0002 was made the fastest."""
    here = tmp_path_factory.mktemp("bundle")
    said = tinygpu("bundle", "axpby", *ASKED, "-n", "5", "-o", str(here / "a.bundle"), "--no-cubins")
    size = (here / "a.bundle").stat().st_size / 1024
    assert f"wrote {here}/a.bundle: 5 kernels, {size:.1f} KiB" in said
    assert "python -m tinygpu.ptx.measuring a.bundle" in said
    faster = here / "b.bundle"
    with zipfile.ZipFile(here / "a.bundle") as old, zipfile.ZipFile(faster, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, b"// fake: us=40\n" + data if name == "kernels/k0002.ptx" else data)
    work(faster)
    return here


def test_a_bundle_holds_what_was_asked_for(folder: Path) -> None:
    made = read_bundle(folder / "a.bundle")
    assert (made.title, made.device) == ("axpby n=3000 x:f32 z:f32 y:f32", "H200-SXM")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d, tinygpu [\d.]+", made.made)
    assert [e.name for e in made.entries] == [f"k{n:04}" for n in range(5)]
    assert len({made.ptx(e) for e in made.entries}) == 5
    predicted = [e.predicted_seconds for e in made.entries]
    assert predicted == sorted(predicted)
    for e in made.entries:
        assert made.cubin(e) is None
        assert e.launch.kernel == "axpby"
        assert e.registers > 0
        assert e.launch.tensor("x").shape == (3000,)
    assert made.questions[0].scalars == (("a", "f32"), ("b", "f32"))


def test_a_shuffled_bundle_begins_with_the_best_and_has_the_others_in_any_order(folder: Path, tmp_path: Path) -> None:
    best = bundle(family("axpby"), Asked({"n": 3000}), device("h200"), tmp_path / "s", count=12, choose="best",
                  cubins=False, shuffled=True)  # fmt: skip
    predicted = [e.predicted_seconds for e in best.bundle.entries]
    assert predicted[0] == min(predicted)
    assert predicted != sorted(predicted)
    ordered = bundle(family("axpby"), Asked({"n": 3000}), device("h200"), tmp_path / "o", count=12, choose="best",
                     cubins=False)  # fmt: skip
    assert sorted(e.digest for e in best.bundle.entries) == sorted(e.digest for e in ordered.bundle.entries)
    assert best.bundle.entries[0].digest == ordered.bundle.entries[0].digest


def test_measured_beats_predicted(folder: Path) -> None:
    out = folder / "out"
    said = tinygpu("tune", "axpby", *ASKED, "--results", str(folder / "b.jsonl"), "--out", str(out))
    results = load_results(folder / "b.jsonl")
    best = next(m for m in results.measurements if m.kernel == "k0002")
    assert "measured on NVIDIA H200, driver 13.0, 20" in said
    assert "winner: Axpby, 4" in said
    launch = json.loads((out / "launch.json").read_text())
    assert launch["point"] == dict(best.point)
    assert launch["measured"]["seconds"] == best.seconds == pytest.approx(40e-6, rel=0.02)
    assert (launch["measured"]["gpu"], launch["measured"]["driver"]) == ("NVIDIA H200", "13.0")
    assert launch["measured"]["changed_since"] is False
    assert launch["verified"] is True
    assert "measured 4" in re.sub(r"\s+", " ", (out / "summary.txt").read_text())
    as_json = tinygpu("tune", "axpby", *ASKED, "--results", str(folder / "b.jsonl"), "--out", str(out), "--json")
    assert json.loads(as_json)["measured"]["seconds"] == best.seconds


def test_results_of_other_questions_are_refused(folder: Path) -> None:
    results = load_results(folder / "b.jsonl")
    with pytest.raises(FileError) as error:
        tune_by_results(family("axpby"), Asked({"n": 4}), device("h200"), results)
    assert str(error.value) == (
        f"{folder}/b.jsonl holds results of axpby n=3000 x:f32 z:f32 y:f32, and nothing of this problem"
    )
    with pytest.raises(FileError) as error:
        tune_by_results(family("axpby"), Asked({"n": 3000}), device("a100"), results)
    assert str(error.value) == (
        f"{folder}/b.jsonl holds kernels made for H200-SXM, not for A100-SXM4-80GB; give --device H200-SXM"
    )
    for path, sentence in (
        (folder / "absent", f"{folder}/absent cannot be read: No such file or directory"),
        (
            folder / "a.bundle",
            f"{folder}/a.bundle is no results file of version 1; `python -m tinygpu.ptx.measuring` writes one",
        ),
    ):
        with pytest.raises(FileError) as error:
            load_results(path)
        assert str(error.value) == sentence
    (folder / "empty").write_text("")
    with pytest.raises(FileError) as error:
        load_results(folder / "empty")
    assert str(error.value) == (
        f"{folder}/empty is no results file of version 1; `python -m tinygpu.ptx.measuring` writes one"
    )


def test_a_search_can_go_over_what_was_measured(folder: Path) -> None:
    results = load_results(folder / "b.jsonl")
    posed = Asked({"n": 3000}).of(Axpby)
    objective = MeasuredTime(results, "Axpby", posed.to_json())
    space = build_space(Axpby, posed, device("h200"))
    found = minimize(space.space, objective, strategy="exhaustive")
    best = next(m for m in results.measurements if m.kernel == "k0002")
    assert found.best == dict(best.point)
    assert found.value == best.seconds
    assert found.failures() == {"unmeasured": space.space.size - 5}


def test_a_search_can_measure_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches go through a worker of their own, relative to the first kernel of the first."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.chdir(tmp_path)
    space = build_space(Axpby, Asked({"n": 200}).of(Axpby), device("h200"))
    objective = measured_objective(space, tmp_path / "runs", COMMAND)
    # cubins of this machine's assembler are unknown to the fake driver, which takes the PTX instead
    found = minimize(space.space, objective, strategy="random", evaluations=4, batch=2, seed=3)
    assert len(found.history) == 4
    assert found.failures() == {}
    assert found.value == pytest.approx(1e-4, rel=0.05)
    first, second = (read_bundle(tmp_path / "runs" / f"batch{n:05}.bundle") for n in range(2))
    assert (len(first.entries), len(second.entries)) == (2, 3)
    assert second.entries[0].point == first.entries[0].point


def test_a_family_goes_into_one_bundle_with_a_question_for_each_machine(tmp_path: Path) -> None:
    made = bundle(
        family("matmul"), Asked({"m": 128, "n": 128, "k": 64}, {"*": "f16"}), device("h200"), tmp_path / "m.bundle",
        count=6, choose="random", cubins=True,
    )  # fmt: skip
    machines = {e.machine for e in made.bundle.entries}
    assert machines == {"MatmulHopper", "MatmulAmpere"}
    assert {e.cubin for e in made.bundle.entries} == {True, False}
    assert len(made.bundle.entries) == 6
    assert {made.bundle.questions[e.question].name.split()[0] == e.machine for e in made.bundle.entries} == {True}
    for e in made.bundle.entries:
        cubin = made.bundle.cubin(e)
        # nvJitLink ignores register budgets: the driver is given the PTX of kernels that have them
        assert (cubin is None) == (b"setmaxnreg" in made.bundle.ptx(e))
        assert cubin is None or cubin.startswith(b"\x7fELF")
        assert (e.launch.target == "sm_90a") == (e.machine == "MatmulHopper")
    assert [r.machine for r in made.refused] == ["MatmulSimt"]
    hopper = next(e for e in made.bundle.entries if e.machine == "MatmulHopper")
    assert hopper.launch.maps
    assert hopper.launch.persistent


class Peculiar(Machine):
    """y = the sorted x, by a reference that a bundle cannot carry"""

    from tinygpu.language import Dim

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)
    warps = Param(1, 2)
    from tinygpu.ptx import isa

    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        from tinygpu.language import blocked

        threads = self.warps * 32
        with p.grid((self.n, threads)) as (i,), p.role("all", warps=self.warps):
            who = blocked((threads,), threads=threads, vector=1, across=threads)
            p.store(self.st, self.y.tile(i, shape=(threads,)), p.load(self.ld, self.x.tile(i, shape=(threads,)), who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.searchsorted(x)


def test_a_reference_that_a_bundle_cannot_carry_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotRecord) as error:
        bundle(Family("p", (Peculiar,)), Asked({"n": 64}), device("h200"), tmp_path / "p.bundle", count=1)
    assert str(error.value) == (
        "Peculiar: its reference asks an array for 'searchsorted', which a bundle cannot carry"
    )
    assert list(tmp_path.iterdir()) == []


def test_what_is_asked_wrongly_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^a bundle holds at least 1 kernel, not 0$"):
        bundle(family("axpby"), Asked({"n": 3}), device("h200"), tmp_path / "x", count=0)
    done = CliRunner().invoke(app, ["bundle", "axpby", *ASKED, "-o", str(tmp_path / "x"), "--choose", "worst"])
    assert str(done.exception) == "--choose is best, random or mixed, not 'worst'"
    done = CliRunner().invoke(app, ["tune", "axpby", *ASKED, "--results", "x", "--measure", "3"])
    assert done.exit_code == 2
    (tmp_path / "old").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "old", "w") as archive:
        archive.writestr("bundle.json", '{"tinygpu_bundle": 0}')
    with pytest.raises(FileError) as error:
        read_bundle(tmp_path / "old")
    assert str(error.value) == (
        f"{tmp_path}/old is a bundle of version 0, and this worker takes version 5; use the same version of tinygpu on "
        "both machines"
    )


def test_every_launch_of_a_bundle_is_that_of_its_kernel(folder: Path) -> None:
    """The round trip through the file, against the kernel made anew."""
    from tinygpu.api.choosing import choose
    from tinygpu.ptx.launching.launches import launch_of

    space = build_space(Axpby, Asked({"n": 3000}).of(Axpby), device("h200"))
    made = read_bundle(folder / "a.bundle")
    for e in made.entries[:2]:
        kernel: Kernel = choose(space, e.point).built.kernel
        assert made.ptx(e).decode() == kernel.ptx
        assert e.launch == launch_of(kernel, space.problem)
