"""What a public project has is there, and says the same everywhere."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import tinygpu

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_written_once_and_printed() -> None:
    assert PROJECT["dynamic"] == ["version"]
    command = [sys.executable, "-c", "from tinygpu.cli import main; main()", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == f"tinygpu {tinygpu.__version__}\n"
    assert f"## {tinygpu.__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_workflow_runs_the_whole_check_on_every_supported_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "run: bash .ci/run" in workflow
    listed = re.search(r"python: \[(.*)\]", workflow)
    assert listed is not None
    assert listed[1].split(", ")[0].strip('"') == PROJECT["requires-python"].removeprefix(">=")


def test_every_declared_dependency_has_a_floor_that_the_check_installs() -> None:
    extras = [name for names in PROJECT["optional-dependencies"].values() for name in names]
    assert all(">=" in requirement for requirement in (*PROJECT["dependencies"], *extras))
    assert "--resolution lowest-direct" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_what_is_data_and_what_is_code_is_said_and_linked() -> None:
    assert (ROOT / "SECURITY.md").is_file()
    assert "SECURITY.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert sorted(p.name for p in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()) == [
        "bug.yml",
        "config.yml",
        "figure.yml",
        "wrong_kernel.yml",
    ]


def taken(part: str, names: list[str]) -> list[str]:
    """What `--part` leaves of tests with these names."""
    spec = importlib.util.spec_from_file_location("suite", ROOT / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    items = [SimpleNamespace(nodeid=name) for name in names]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    suite.take_part(SimpleNamespace(option=SimpleNamespace(part=part), hook=hook), items)
    return [item.nodeid for item in items]


def test_the_parts_of_a_suite_are_the_suite_and_have_nothing_in_common() -> None:
    names = [f"tests/test_any.py::test[{i}]" for i in range(100)]
    parts = [taken(f"{which}/3", names) for which in range(3)]
    assert all(len(part) > 20 for part in parts)
    assert sorted(name for part in parts for name in part) == sorted(names)


def test_a_part_that_there_is_not_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="--part 3/3 is no part: K/N with K from 0 to N - 1"):
        taken("3/3", [])
