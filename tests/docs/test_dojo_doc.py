"""docs/dojo.md: its Python runs, and the commands that it shows are commands that there are."""

import re
import shlex
from pathlib import Path
from typing import Any

import typer

from tinygpu.cli.app import app

TEXT = (Path(__file__).parents[2] / "docs" / "dojo.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_page_runs() -> None:
    for block in blocks("python"):
        names: dict[str, object] = {}
        exec(compile(block, "docs/dojo.md", "exec"), names)
        assert str(names["picture"]).startswith("<svg ")


def test_the_commands_of_the_page_are_read_as_they_stand() -> None:
    """Words and options are parsed; what the commands do is tested where they are."""
    group: Any = typer.main.get_command(app)
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("tinygpu ")]
    assert len(lines) >= 4
    for line in lines:
        words = shlex.split(line)[1:]
        command = group.commands[words[0]]
        assert command.make_context(words[0], words[1:]).params["machine"].startswith("matmul")
