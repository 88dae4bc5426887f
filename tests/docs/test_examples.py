"""docs/examples: every file runs as it stands, in a process of its own, and says that its kernel is right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.end_to_end

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LAST_LINES = {"softmax.py": "emulated: right", "missing_barrier.py": "with bar.sync 0: right"}


def test_every_example_is_run_here_and_listed_in_its_readme() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == set(LAST_LINES)
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}]({name})" in readme for name in files)


@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == LAST_LINES[name]
    assert not list(tmp_path.iterdir()), "an example writes nothing"
