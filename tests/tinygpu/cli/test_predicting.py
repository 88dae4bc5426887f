"""tinygpu predict, timeline and roofline, from the command line to files, and what they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import tinygpu.api.finalist as finalist
from tinygpu.api.machines import family
from tinygpu.api.predict import predict_point
from tinygpu.api.problems import Asked
from tinygpu.cli.app import app, main
from tinygpu.devices import device
from tinygpu.ptx.assembling.assembler import AssemblerUnavailable

SCALE = """
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


class Scale(Machine):
    \"\"\"y = 3 * x\"\"\"

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)
    warps = Param(1, 2, 4)
    ld, st, mul = isa.LdGlobal(), isa.StGlobal(), isa.Mul("f32")

    def program(self, p):
        threads = self.warps * 32
        who = blocked((threads,), threads=threads)
        with p.grid((self.n, threads)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=(threads,)), who)
            p.store(self.st, self.y.tile(i, shape=(threads,)), p.apply(self.mul, x, 3.0))

    @staticmethod
    def reference(x):
        return x * 3
"""
AXPBY = ("axpby", "--shape", "n=1000000", "--device", "a100")
ASKED = ("scale.py:Scale", "--shape", "n=1000000", "--device", "a100")
MATMUL = ("matmul_ampere", "--shape", "m=512,n=512,k=512", "--device", "rtx4090")
POINT = ("bm=64", "bn=64", "bk=32", "stages=3", "warps_m=2", "warps_n=2", "raster=8", "store=direct")


def tinygpu(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.end_to_end
def test_predict_prints_units_roles_and_what_the_time_is_made_of() -> None:
    out = tinygpu("predict", *MATMUL, *POINT)
    lines = [line.strip() for line in out.splitlines()]
    assert "candidate copy_a=cp.async copy_b=cp.async fragment_a=ldmatrix" in out
    assert any(line.startswith("predicted, not measured: ") and "simulated" in line for line in lines)
    assert any(line.startswith("bottleneck: ") for line in lines)
    for row in ("tensor cores", "shared memory", "L2", "all", "latency", "partly filled last wave", "roofline"):
        assert any(line.startswith(row) for line in lines), row


@pytest.mark.end_to_end
def test_json_says_the_same_as_a_call() -> None:
    said: dict[str, Any] = json.loads(tinygpu("predict", *MATMUL, *POINT, "--json"))
    point = {k: int(v) if v.isdigit() else v for k, _, v in (word.partition("=") for word in POINT)}
    found = predict_point(family("matmul_ampere"), Asked({"m": 512, "n": 512, "k": 512}), device("rtx4090"), point)
    assert said == json.loads(json.dumps(found.to_json()))
    assert said["kind"] == "predicted"
    assert said["registers_from"] in ("assembler", "estimate")
    parts = said["closed_form_parts_s"]
    units = max(parts[unit] for unit in ("tensor", "fma", "alu", "sfu", "issue", "smem", "l2", "dram"))
    lost = sum(parts[cause] for cause in ("latency", "tail", "power", "launch"))
    assert units + lost == pytest.approx(said["closed_form_s"])
    assert point.items() <= said["point"].items()


@pytest.mark.end_to_end
def test_streams_cost_more_to_launch_than_graphs() -> None:
    graph, stream = (
        json.loads(tinygpu("predict", *AXPBY, "--launch", launch, "--json")) for launch in ("graph", "stream")
    )
    assert graph["simulated_s"] < stream["simulated_s"]


def test_without_an_assembler_registers_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise AssemblerUnavailable("none")

    monkeypatch.setattr(finalist, "assemble", missing)
    out = tinygpu("predict", *AXPBY)
    assert "not assembled, for there is no assembler: " in out
    assert " registers estimated" in out


@pytest.mark.end_to_end
def test_timelines_and_rooflines_are_written(tmp_path: Path) -> None:
    trace, drawn, roof = tmp_path / "new" / "t.json", tmp_path / "t.svg", tmp_path / "r.svg"
    assert f"wrote {trace}" in tinygpu("timeline", *AXPBY, "-o", str(trace)).replace("\n", "")
    tinygpu("timeline", *AXPBY, "warps=4", "-o", str(drawn))
    tinygpu("roofline", *AXPBY, "-o", str(roof))
    assert json.loads(trace.read_text())["otherData"]["device"] == "A100-SXM4-80GB"
    for svg in (drawn, roof):
        root = ElementTree.fromstring(svg.read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "Axpby n=1000000" in root.attrib["aria-label"]
    assert " warps=4 " in ElementTree.fromstring(drawn.read_text()).attrib["aria-label"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("timeline", *ASKED, "-o", "t.png"),
            "tinygpu: [timeline] a timeline is written as .json (Chrome trace) or as .svg, not to 't.png'",
        ),
        (
            ("roofline", *ASKED, "-o", "r.json"),
            "tinygpu: [roofline] a roofline is written as .svg, not to 'r.json'",
        ),
        (
            ("predict", *ASKED, "warp=4"),
            "tinygpu: Scale does not admit this point: Scale has no parameter 'warp'; it has warps",
        ),
        (
            ("predict", *ASKED, "warps=3"),
            "tinygpu: scale.py:6: Scale does not admit this point: warps: 3 is not on offer; choose from 1, 2, 4",
        ),
        (
            ("predict", *ASKED, "--launch", "loop"),
            "tinygpu: --launch is graph or stream, not 'loop'",
        ),
    ],
)
def test_what_is_impossible_gets_one_sentence(
    words: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "scale.py").write_text(SCALE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tinygpu", *words])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert (end.value.code, said.err, said.out) == (1, sentence + "\n", "")
    assert {path.suffix for path in tmp_path.glob("*.*")} == {".py"}
