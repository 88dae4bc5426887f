"""What a public project has is there, and says the same everywhere."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

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
