"""`tinygpu calibrate`: the GPU of this machine, measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tinygpu.cli.options import JSON


def calibrate_command(
    only: Annotated[list[str], typer.Option(help="a microbenchmark, a group, or a figure of a device")] = [],
    device: Annotated[str, typer.Option("--device", "-d", help="the GPU that it is like (default: by its name)")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="file of the profile (default: runs/NAME-measured.json)")
    ] = None,
    device_index: Annotated[int, typer.Option(help="number of the GPU in this machine")] = 0,
    rounds: Annotated[int, typer.Option(help="how often fewer and more trips take turns")] = 9,
    listed: Annotated[bool, typer.Option("--list", help="show the microbenchmarks, and run none")] = False,
    emulate: Annotated[bool, typer.Option("--emulate", help="prove them in the emulator, without a GPU")] = False,
    as_json: JSON = False,
) -> None:
    """Measure the GPU of this machine: a device file with measured figures, each with its source.

    Give that file wherever a GPU is asked for: `--device runs/H200-SXM-measured.json`.

    Examples: `tinygpu calibrate`, `tinygpu calibrate --only memory --only lat_dram`, `tinygpu calibrate --emulate`
    """
    import shlex

    from tinygpu.api.calibrate import calibrate, prove_microbenchmarks
    from tinygpu.cli.calibration import (
        calibrated_report,
        listed_json,
        listed_report,
        outcome_line,
        proof_line,
        proofs_json,
    )
    from tinygpu.ptx.calibration import Rounds, Settings, chosen

    if listed:
        found = chosen(only)
        print(json.dumps(listed_json(found), indent=2)) if as_json else listed_report(found)
        return
    if emulate:
        proofs = prove_microbenchmarks(only, tell=None if as_json else proof_line)
        if as_json:
            print(json.dumps(proofs_json(proofs), indent=2))
        if not all(p.holds for p in proofs):
            raise typer.Exit(1)
        return
    done = calibrate(
        only,
        settings=Settings(ordinal=device_index, rounds=Rounds(rounds)),
        like=device or None,
        out=out,
        command=shlex.join(["tinygpu", *sys.argv[1:]]),
        tell=None if as_json else outcome_line,
    )
    if as_json:
        print(json.dumps(done.calibration.to_json() | {"wrote": str(done.path) if done.path else None}, indent=2))
    else:
        calibrated_report(done)
    if done.path is None or done.calibration.failed:
        raise typer.Exit(1)
