"""`tinygpu emit`: whatever it writes, and wherever to, it says whether the kernel was verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app

ASKED = ["bias_relu", "--shape", "m=37,n=101", "--device", "a100", "warps=2", "rows=2"]
NOT_VERIFIED = "not verified: no emulator has run this kernel; `tinygpu verify` does, and `tinygpu emit --verify`"
VERIFIED = "verified: right in "


def emitted(*more: str) -> Any:
    result = CliRunner().invoke(app, ["emit", *ASKED, *more])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("verify", [False, True])
def test_every_way_to_emit_says_whether_it_was_verified(verify: bool, tmp_path: Path) -> None:
    asked = ["--verify"] if verify else []
    folder = tmp_path / "kernel"
    written = emitted("--out", str(folder), *asked)
    said = written.stderr.strip()
    assert said.startswith(VERIFIED) if verify else said == NOT_VERIFIED
    assert json.loads((folder / "launch.json").read_text())["verified"] is (True if verify else None)
    summary = (folder / "summary.txt").read_text()
    assert ("emulated, right" in summary) is verify
    assert (f"emulated    {NOT_VERIFIED}" in summary) is not verify


@pytest.mark.end_to_end
def test_the_text_alone_goes_to_standard_output() -> None:
    plain, data = emitted(), emitted("--json")
    assert plain.stderr.strip() == data.stderr.strip() == NOT_VERIFIED
    described = json.loads(data.stdout)
    assert described["verified"] is None
    assert described["ptx"] == plain.stdout
