"""Step: the tests that are marked gpu."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as Xml
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_call.step import Call, Skip, python, run_program, run_step

TESTS = Path(__file__).resolve().parents[1]
# One process, whatever the suite's own options say: several would share the GPU, and time one another.
_OPTIONS = "-q --import-mode=importlib"


def outcomes(text: str) -> dict[str, dict[str, str]]:
    """What became of each test, from JUnit's XML: {"name": {"outcome", "why"}}."""
    found = {}
    for case in Xml.fromstring(text).iter("testcase"):
        told = {"outcome": "passed", "why": ""}
        for kind in ("failure", "error", "skipped"):
            said = case.find(kind)
            if said is not None:
                lines = (said.get("message") or said.text or "").strip().splitlines()
                told = {"outcome": {"failure": "failed"}.get(kind, kind), "why": lines[0] if lines else ""}
        found[case.get("name", "")] = told
    return found


def files() -> list[Path]:
    """Those of tests that need a GPU; others here need what only the machine that prepares has."""
    return sorted(TESTS.glob("test_*_on_gpu.py"))


def gpu_tests(call: Call) -> Mapping[str, Any]:
    if call.rehearsal:
        raise Skip("this is a rehearsal: the tests need a GPU")
    report = call.work / "junit.xml"
    command = python(
        "pytest", *files(), "-m", "gpu", "-p", "no:cacheprovider", "--rootdir", TESTS.parents[1], "-c",
        TESTS.parents[1] / "pyproject.toml", "-o", f"addopts={_OPTIONS}", "--junitxml", report,
    )  # fmt: skip
    ended = run_program(command, call.left() - 1, cwd=call.work, log=call.work / "pytest.log")
    if not report.exists():
        last = ended.output.strip().splitlines()
        raise RuntimeError(f"the tests gave no report: {last[-1] if last else 'they printed nothing'}")
    found = outcomes(report.read_text())
    counts: dict[str, int] = {}
    for told in found.values():
        counts[told["outcome"]] = counts.get(told["outcome"], 0) + 1
    return {"tests": found, "counts": counts}


if __name__ == "__main__":
    sys.exit(run_step(gpu_tests))
