"""A terminal that lacks characters gets "?" in their place, never an exception."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, "-c", "from tinygpu.cli import main; main()"]
STRICT = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"}


@pytest.mark.end_to_end
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "status"), [(["tune", "--help"], 0), (["devices", "a100"], 0), (["show", "größe.py:Maß"], 1)]
)
def test_a_strict_ascii_terminal_is_written_to(words: list[str], status: int, tmp_path: Path) -> None:
    ended = subprocess.run([*RUN, *words], env=os.environ | STRICT, cwd=tmp_path, capture_output=True)
    assert ended.returncode == status, ended.stderr
    assert b"Traceback" not in ended.stderr
    (ended.stdout + ended.stderr).decode("ascii")
