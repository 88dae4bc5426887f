"""Drawings of plans: their kernels one behind the other, and each with its place in the roofline."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tinygpu.api.machines import family
from tinygpu.api.predict import AnyPredicted
from tinygpu.api.predicted_plan import PlanPredicted
from tinygpu.api.problems import Asked
from tinygpu.api.roofline import write_roofline
from tinygpu.api.timeline import write_timeline
from tinygpu.devices import device
from tinygpu.simulator.simulate import Simulation
from tinygpu.simulator.steps import steps_svg

# A candidate, so that nothing is searched.
POINT: dict[str, int | str] = {
    "chunk": 16384,
    "parts.exchange": "shuffles", "parts.warps": 1, "parts.across": 32, "parts.vector": 4, "parts.step": 4,
    "rest.exchange": "shuffles", "rest.warps": 1, "rest.across": 32, "rest.vector": 4, "rest.step": 8,
}  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawings")


@pytest.fixture(scope="module")
def found(folder: Path) -> PlanPredicted:
    """What is predicted of a sum of numbers in two kernels, drawn in all three ways."""
    said: list[AnyPredicted] = []
    for name, write in (("t.json", write_timeline), ("t.svg", write_timeline), ("r.svg", write_roofline)):
        asked = Asked({"n": 1_000_003})
        said.append(write(family("tensor_reduction"), asked, device("a100"), POINT, folder / name))
    first = said[0]
    assert isinstance(first, PlanPredicted)
    return first


def simulations(found: PlanPredicted) -> Mapping[str, Simulation]:
    return dict(zip(found.prediction.steps, found.simulations, strict=True))


@pytest.mark.end_to_end
def test_a_trace_of_a_plan_has_its_kernels_one_behind_the_other(found: PlanPredicted, folder: Path) -> None:
    trace = json.loads((folder / "t.json").read_text())
    steps = simulations(found)
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert len(set(names.values())) == len(names)  # a process is one step's
    begun, counted = 0.0, 0
    for name, simulation in steps.items():
        mine = [e for e in trace["traceEvents"] if names[e["pid"]].startswith(f"{name}: ") and e["ph"] in "Xbe"]
        starts = [e["ts"] for e in mine]
        assert min(starts) == pytest.approx((begun + simulation.launch_s) * 1e6)
        ends = [e["ts"] + e.get("dur", 0.0) for e in mine]
        begun += simulation.seconds
        assert max(ends) <= begun * 1e6 * (1 + 1e-9)
        counted += sum(e["ph"] in "Xb" for e in mine)
    assert trace["otherData"]["predicted_us"] == pytest.approx(begun * 1e6)
    copies = [e["id"] for e in trace["traceEvents"] if e["ph"] == "b"]
    assert len(set(copies)) == len(copies)
    assert counted > 0


@pytest.mark.end_to_end
def test_a_drawing_of_a_plan_has_a_launch_and_a_run_for_each_kernel(found: PlanPredicted, folder: Path) -> None:
    root = ElementTree.fromstring((folder / "t.svg").read_text())
    boxes = [b for b in root.iter(f"{SVG}rect") if b.attrib.get("class") != "ground"]
    assert len(boxes) == 2 * len(found.simulations)
    edges = [(float(b.attrib["x"]), float(b.attrib["x"]) + float(b.attrib["width"])) for b in boxes]
    for before, after in itertools.pairwise(edges):
        assert after[0] == pytest.approx(before[1], abs=0.05)
    assert edges[-1][1] <= float(root.attrib["width"])
    words = " ".join(t.text or "" for t in root.iter(f"{SVG}text"))
    assert all(f"{name}: " in words for name in simulations(found))
    assert "simulated, not measured" in words


def test_a_roofline_of_a_plan_has_a_place_for_each_kernel(found: PlanPredicted, folder: Path) -> None:
    root = ElementTree.fromstring((folder / "r.svg").read_text())
    assert len(list(root.iter(f"{SVG}circle"))) == 2 * len(found.simulations) + 2  # and the legend
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert set(simulations(found)) <= set(words)
    assert "each step, by its DRAM traffic" in words


def test_a_refused_launch_of_a_plan_is_not_drawn(found: PlanPredicted) -> None:
    name, first = next(iter(simulations(found).items()))
    with pytest.raises(ValueError) as caught:
        steps_svg({name: replace(first, seconds=math.inf)}, "anything")
    assert str(caught.value) == (
        f"[timeline] there is nothing to draw of step {name}: the launch is refused: it exceeds the limits of a CTA on "
        "A100-SXM4-80GB"
    )
