"""What docs/report.md shows is what happens."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.end_to_end
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in next(text for kind, text in BLOCKS if kind == "sh").splitlines():
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.end_to_end
def test_the_python_of_the_page_runs() -> None:
    code = next(text for kind, text in BLOCKS if kind == "python")
    exec(compile(code, "docs/report.md", "exec"), {})


def test_the_table_names_the_parts_of_the_page() -> None:
    source = (Path(__file__).parents[2] / "tinygpu" / "report" / "page.py").read_text()
    titles = re.findall(r'yield "\w+", "\w+", "([^"]+)"', source)
    rows = re.findall(r"^\| ([A-Z][^|]+?) \|", PAGE, re.MULTILINE)
    assert rows == [title for title in titles if not title.startswith("Machines")]
