"""`tinygpu tune`: the search, and the best by measured times."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tinygpu.cli.options import ALIGN, DEVICE, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION, SHAPE


def tune_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    strategy: Annotated[str, typer.Option(help="auto, or a strategy of docs/search.md by name")] = "auto",
    evaluations: Annotated[int | None, typer.Option(help="how many candidates are tried at most")] = None,
    seconds: Annotated[float | None, typer.Option(help="how long the search goes on at most")] = None,
    within: Annotated[float | None, typer.Option(help="enough is so many per cent above the roofline's time")] = None,
    journal: Annotated[Path | None, typer.Option(help="folder: a run that was killed goes on from there")] = None,
    processes: Annotated[int, typer.Option(help="assemble every candidate that is tried, in so many processes")] = 0,
    cache: Annotated[Path | None, typer.Option(help="file that keeps assembled candidates between runs")] = None,
    seed: Annotated[int, typer.Option(help="of every random draw")] = 0,
    keep: Annotated[int, typer.Option(help="how many of the best are assembled")] = 6,
    results: Annotated[Path | None, typer.Option(help="measured times, from `python -m tinygpu.ptx.measuring`")] = None,
    measure: Annotated[int, typer.Option(help="time so many of the best on the GPU that is here")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder for the kernel (runs/...)")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="also reasons, constraints and checks")] = False,
    as_json: JSON = False,
) -> None:
    """Search every machine of a family, emit the best candidate as PTX, and prove it right in the emulator.

    With --results or --measure the best is the one that was measured to be, whatever was predicted. Ctrl-C ends the
    search with exit code 130, and leaves what was found in a run.json for `tinygpu report`.

    Examples:

    `tinygpu tune matmul --shape m=4096,n=14336,k=4096 --device a100`

    `tinygpu tune matmul --shape m=1000,n=999,k=77 --dtype f32 --device rtx4090 --option activation=relu`

    `tinygpu tune my_machine.py:Softplus --shape n=1000000 --device h100`

    `tinygpu tune matmul --shape m=4096,n=4096,k=4096 --device a100 --evaluations 500 --processes 8 --journal runs/mm`

    `tinygpu tune matmul --shape m=4096,n=4096,k=4096 --device h200 --results mm.bundle.results.jsonl`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.output import check_output, default_folder, write_kernel
    from tinygpu.api.report import run_of
    from tinygpu.api.tune import Effort, Interrupted, tune
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.interrupted import INTERRUPTED, MEASURING_INTERRUPTED, interrupted_report
    from tinygpu.cli.live import watching
    from tinygpu.cli.printing import console
    from tinygpu.cli.tuned import tuned_report
    from tinygpu.devices import device as find
    from tinygpu.ptx.runtime.driver import available

    if within is not None and not within >= 0:
        raise typer.BadParameter(f"--within is in per cent above the roofline's time, 5 or 0.5, not {within:g}")
    given = asked(shape, dtype, major, ld, align, option)
    if out is not None:
        check_output(out)
    if results is not None or measure:
        if results is not None and measure:
            raise typer.BadParameter("give --results or --measure, not both")
        try:
            _tune_measured(machine, given, device, results, measure, seconds, seed, out, as_json)
        except KeyboardInterrupt:
            print(f"tinygpu: {MEASURING_INTERRUPTED}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        return
    try:
        with watching(console, quiet=as_json, verbose=verbose) as watcher:
            effort = Effort(
                strategy=strategy,
                evaluations=evaluations,
                seconds=seconds,
                within=None if within is None else within / 100,
                journal=journal,
                processes=processes,
                cache=cache,
                seed=seed,
                keep=keep,
            )
            tuned = tune(family(machine), given, find(device), effort, watcher)
    except Interrupted as stopped:
        interrupted_report(stopped, out, journal)
        raise typer.Exit(INTERRUPTED) from None
    if not tuned.verification.passed:
        print(f"tinygpu: the winner is wrong, nothing is written: {tuned.verification}", file=sys.stderr)
        raise typer.Exit(1)
    folder = out or default_folder(tuned.winner)
    files = write_kernel(folder, tuned.winner, tuned.verification, run=run_of(tuned))
    if as_json:
        print((folder / "launch.json").read_text(), end="")
    else:
        tuned_report(tuned, files, available(), verbose=verbose)


def _tune_measured(
    machine: str,
    given: Any,
    device: str,
    results: Path | None,
    count: int,
    seconds: float | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """`tinygpu tune` by measured times: of a results file, or of `count` candidates timed here."""
    from tinygpu.api.machines import family
    from tinygpu.api.measured import measure_here, tune_by_results
    from tinygpu.api.output import default_folder, write_kernel
    from tinygpu.cli.live import watching
    from tinygpu.cli.measuring import measured_json, measured_report
    from tinygpu.cli.printing import console
    from tinygpu.devices import device as find

    chosen, target = family(machine), find(device)
    with watching(console, quiet=as_json) as watcher:
        if results is None:
            name = f"measured-{chosen.name.rpartition(':')[2]}-{target.name}-{datetime.now():%Y%m%d-%H%M%S}"
            found = measure_here(
                chosen,
                given,
                target,
                Path("runs") / name,
                count=count,
                seconds=seconds or 60.0,
                seed=seed,
                watcher=watcher,
                say=lambda line: None if as_json else console.print(line),
            )
        else:
            from tinygpu.search.measured import load_results

            found = load_results(results)
        tuned = tune_by_results(chosen, given, target, found, seed=seed, watcher=watcher)
    if not tuned.verification.passed:
        print(f"tinygpu: the winner is wrong, nothing is written: {tuned.verification}", file=sys.stderr)
        raise typer.Exit(1)
    kernel = out or default_folder(tuned.winner)
    files = write_kernel(kernel, tuned.winner, tuned.verification, measured_json(tuned))
    if as_json:
        print((kernel / "launch.json").read_text(), end="")
    else:
        measured_report(tuned, files)
