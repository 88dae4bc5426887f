"""The commands of `tinygpu`: each is one call of `tinygpu.api`, and its printing."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tinygpu.cli.reporting import report_command
from tinygpu.cli.training import train_command

MACHINE = Annotated[str, typer.Argument(help="a shipped machine, a family, or path/to/file.py:ClassName")]
SHAPE = Annotated[str, typer.Option("--shape", help="every dim of the machine: m=4096,n=4096,k=4096")]
DEVICE = Annotated[str, typer.Option("--device", "-d", help="a GPU of `tinygpu devices`, or a device file")]
DTYPE = Annotated[list[str], typer.Option("--dtype", help="f16 for all inputs, or a=f16 per tensor")]
MAJOR = Annotated[list[str], typer.Option("--major", help="a=col: column-major operands")]
LD = Annotated[list[str], typer.Option("--ld", help="a=4104: leading dimension in elements")]
ALIGN = Annotated[list[str], typer.Option("--align", help="a=2: alignment of a pointer in bytes (16)")]
OPTION = Annotated[list[str], typer.Option("--option", help="activation=relu: an option of the machine")]
JSON = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
POINT = Annotated[list[str], typer.Argument(help="name=value ...: parameters of the candidate")]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Small machines for one operation: searched under constraints, emitted as PTX, verified in an emulator.",
)


def main() -> None:
    """Runs one command. Exit codes: 0 fine, 1 what was asked for is impossible or wrong, 2 usage."""
    try:
        app()
    except Exception as error:
        if not expected(error):
            raise
        print(f"tinygpu: {error}", file=sys.stderr)
        sys.exit(1)


def expected(error: Exception) -> bool:
    """Whether an error is an answer to the user, not a fault of ours."""
    from tinygpu.language.parameters import DeclarationError
    from tinygpu.ptx.assembler import AssemblerError
    from tinygpu.ptx.lowering.context import LoweringError

    return isinstance(error, (ValueError, DeclarationError, AssemblerError, LoweringError, OSError))


@app.command("machines")
def machines_command(as_json: JSON = False) -> None:
    """List the machines and families that ship.

    Example: `tinygpu machines`
    """
    from tinygpu.api.machines import FAMILIES, SHIPPED, family
    from tinygpu.cli.printing import console, table

    found = {name: family(name).machines[0] for name in SHIPPED}
    if as_json:
        summaries = {k: v.summary() for k, v in found.items()}
        print(json.dumps({"machines": summaries, "families": dict(FAMILIES)}, indent=2))
        return
    rows = table("name", "what it computes", "dims", "tensors")
    for name, machine in found.items():
        tensors = " ".join(f"{t.name}:{'|'.join(d.name for d in t.dtypes)}" for t in machine.tensor_declarations())
        rows.add_row(name, machine.summary(), ",".join(machine.dim_names()), tensors)
    console.print(rows)
    for name, members in FAMILIES.items():
        console.print(f"family [bold]{name}[/bold]: every one of {', '.join(members)} that is legal is searched")


@app.command("show")
def show_command(machine: MACHINE, as_json: JSON = False) -> None:
    """Show a machine: parameters, instructions, constraints, and its program for every structure.

    Examples: `tinygpu show matmul_ampere`, `tinygpu show my_machine.py:Softplus`
    """
    from tinygpu.api.machines import family
    from tinygpu.cli.show import show, show_json

    for m in family(machine).machines:
        print(json.dumps(show_json(m), indent=2)) if as_json else show(m)


@app.command("devices")
def devices_command(
    name: Annotated[str, typer.Argument(help="one GPU, to see every figure with its source")] = "",
    as_json: JSON = False,
) -> None:
    """List the GPUs that are known, or every figure of one with unit, kind and source.

    Examples: `tinygpu devices`, `tinygpu devices a100`
    """
    from tinygpu.cli.printing import console, table
    from tinygpu.devices import device
    from tinygpu.devices.tables import describe, summary

    if name:
        figures = describe(device(name))
        if as_json:
            print(json.dumps([f._asdict() for f in figures], indent=2))
            return
        rows = table("figure", "value>", "unit", "kind", "source")
        for f in figures:
            rows.add_row(f.field, "-" if f.value is None else str(f.value), f.unit, f.kind, f.source or "")
        console.print(rows)
        return
    listed = summary()
    if as_json:
        print(json.dumps([d._asdict() for d in listed], indent=2))
        return
    columns = ("name", "also", "target", "SMs>", "f16 TFLOP/s>", "DRAM GB/s>", "L2 MiB>", "smem KiB/CTA>")
    rows = table(*columns)
    for d in listed:
        f16 = f"{d.f16_tflops:,.0f}" if d.f16_tflops else "-"
        rows.add_row(
            d.name,
            d.aliases,
            d.target,
            str(d.sms),
            f16,
            f"{d.dram_gb_per_s:,.0f}",
            f"{d.l2_mib:g}",
            str(d.smem_kib_per_cta),
        )
    console.print(rows)


@app.command("space")
def space_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    as_json: JSON = False,
) -> None:
    """Build the space: its raw size, what each constraint removes, and how many candidates are left.

    Example: `tinygpu space matmul --shape m=4096,n=4096,k=4096 --device a100`
    """
    from tinygpu.api.emit import spaces
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.printing import console, space_report
    from tinygpu.devices import device as find

    empty = True
    out: list[dict[str, Any]] = []
    for s in spaces(family(machine), asked(shape, dtype, major, ld, align, option), find(device)):
        empty = empty and not s.space.size
        if as_json:
            rows = [
                {"constraint": r.name, "kind": r.kind, "source": r.source, "removed": r.removed}
                for r in s.space.funnel
            ]
            out.append(
                {"machine": s.machine.__name__, "raw": s.space.raw_size, "funnel": rows, "candidates": s.space.size}
            )
            continue
        space_report(s)
        if not s.space.size:
            for conflict in s.space.conflict():
                console.print(f"no candidate: {conflict}")
            console.print(str(s.space.nearest()))
    if as_json:
        print(json.dumps(out, indent=2))
    if empty:
        raise typer.Exit(1)


@app.command("explain")
def explain_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    as_json: JSON = False,
) -> None:
    """Say which constraints a point breaks, with the numbers. Parameters that are left out may take any value.

    Example: `tinygpu explain matmul_ampere --shape m=4096,n=4096,k=4096 --device rtx4090 bm=256 bn=256 stages=6`
    """
    from tinygpu.api.emit import explain, spaces
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    chosen = read_point(point)
    admitted = False
    verdicts: list[tuple[str, list[str]]] = []
    for s in spaces(family(machine), asked(shape, dtype, major, ld, align, option), find(device)):
        broken = explain(s, chosen)
        admitted = admitted or not broken
        verdicts.append((s.machine.__name__, list(broken)))
    if as_json:
        out = [{"machine": name, "admitted": not breaks, "breaks": breaks} for name, breaks in verdicts]
        print(json.dumps(out, indent=2))
    else:
        for name, breaks in verdicts:
            if not breaks:
                count = "" if len(chosen) else " (no parameter was given)"
                print(f"{name}: admitted{count}")
            else:
                print(f"{name}: out")
                for sentence in breaks:
                    print(f"  {sentence}")
    if not admitted:
        raise typer.Exit(1)


@app.command("tune")
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
    results: Annotated[Path | None, typer.Option(help="measured times, from `python -m tinygpu.ptx.worker`")] = None,
    measure: Annotated[int, typer.Option(help="time so many of the best on the GPU that is here")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder for the kernel (runs/...)")] = None,
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
    from tinygpu.api.output import default_folder, write_kernel
    from tinygpu.api.report import run_of
    from tinygpu.api.tune import Interrupted, tune
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.live import watching
    from tinygpu.cli.printing import console, tuned_report
    from tinygpu.cli.reporting import INTERRUPTED, interrupted_report
    from tinygpu.devices import device as find
    from tinygpu.ptx.driver import available

    given = asked(shape, dtype, major, ld, align, option)
    if results is not None or measure:
        if results is not None and measure:
            raise typer.BadParameter("give --results or --measure, not both")
        _tune_measured(machine, given, device, results, measure, seconds, seed, out, as_json)
        return
    try:
        with watching(console, quiet=as_json) as watcher:
            tuned = tune(
                family(machine),
                given,
                find(device),
                strategy=strategy,
                evaluations=evaluations,
                seconds=seconds,
                within=None if within is None else within / 100,
                journal=journal,
                processes=processes,
                cache=cache,
                seed=seed,
                keep=keep,
                watcher=watcher,
            )
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
        tuned_report(tuned, files, available())


app.command("report")(report_command)
app.command("train")(train_command)


@app.command("bundle")
def bundle_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    out: Annotated[Path, typer.Option("--out", "-o", help="the file to write")],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    count: Annotated[int, typer.Option("--count", "-n", help="how many kernels")] = 500,
    choose: Annotated[str, typer.Option(help="best (by prediction), random, or mixed: half of each")] = "mixed",
    seconds: Annotated[float, typer.Option(help="how long each machine's best are searched at most")] = 60.0,
    seed: Annotated[int, typer.Option(help="of every random draw")] = 0,
    cubins: Annotated[bool, typer.Option(help="machine code for the device, beside the PTX")] = True,
    as_json: JSON = False,
) -> None:
    """Write candidates as kernels into one file, to be timed on a GPU elsewhere.

    There, `python -m tinygpu.ptx.worker FILE` verifies and times them; it needs NumPy and cuda-bindings alone. What it
    writes, `tinygpu tune --results` takes in.

    Example: `tinygpu bundle matmul --shape m=4096,n=4096,k=4096 --dtype bf16 --device h200 -n 500 -o mm.bundle`
    """
    from tinygpu.api.bundle import CHOOSE, bundle
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.emulation import one_of
    from tinygpu.cli.live import watching
    from tinygpu.cli.measuring import bundled_json, bundled_report
    from tinygpu.cli.printing import console
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    with watching(console, quiet=as_json) as watcher:
        made = bundle(
            family(machine),
            given,
            find(device),
            out,
            count=count,
            choose=one_of("--choose", choose, CHOOSE),
            seconds=seconds,
            seed=seed,
            cubins=cubins,
            watcher=watcher,
        )
    if as_json:
        print(json.dumps(bundled_json(made), indent=2))
    else:
        bundled_report(made)


@app.command("predict")
def predict_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    launch: Annotated[str, typer.Option(help="graph (launches follow each other), or stream")] = "graph",
    as_json: JSON = False,
) -> None:
    """Predict one candidate's time: closed form and simulation, by unit and role, down from the roofline.

    Parameters that are left out are chosen by the predictor. Nothing is measured.

    Example: `tinygpu predict matmul_ampere --shape m=4096,n=4096,k=4096 --device a100 bm=128 bn=128 stages=3`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.predict import predict_point
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.cli.emulation import one_of
    from tinygpu.cli.predicting import predicted_report
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    found = predict_point(
        family(machine),
        given,
        find(device),
        read_point(point),
        launch=one_of("--launch", launch, ("graph", "stream")),
    )
    print(json.dumps(found.to_json(), indent=2)) if as_json else predicted_report(found)


@app.command("timeline")
def timeline_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    out: Annotated[Path, typer.Option("--out", "-o", help="file.json (Chrome trace) or file.svg")],
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
) -> None:
    """Write the simulated timeline of one candidate: who does what on an SM, and who waits for whom.

    A .json opens in ui.perfetto.dev and chrome://tracing; an .svg is a drawing of the beginning.

    Example: `tinygpu timeline matmul_hopper --shape m=4096,n=4096,k=4096 --device h100 -o timeline.json`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.timeline import write_timeline
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    found = write_timeline(family(machine), given, find(device), read_point(point), out)
    print(f"{found.title}: {found.simulation.sentence()}")
    print(f"wrote {out}")


@app.command("roofline")
def roofline_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    out: Annotated[Path, typer.Option("--out", "-o", help="file.svg")],
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
) -> None:
    """Draw the best candidate below the ceilings of a GPU, among others drawn at random.

    Example: `tinygpu roofline matmul --shape m=4096,n=4096,k=4096 --device a100 -o roofline.svg`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.roofline import write_roofline
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    found = write_roofline(family(machine), given, find(device), read_point(point), out)
    print(f"{found.title}: {found.simulation.prediction.sentence()}")
    print(f"wrote {out}")


@app.command("emit")
def emit_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder to write to (default: print the PTX)")] = None,
    as_json: JSON = False,
) -> None:
    """Write the PTX of one candidate; parameters that are left out are chosen by the predictor.

    Example: `tinygpu emit matmul_ampere --shape m=4096,n=4096,k=4096 --device a100 bm=128 bn=128 bk=32 stages=4`
    """
    made = _point_of(machine, shape, device, point, dtype, major, ld, align, option)
    if out is not None:
        from tinygpu.api.output import write_kernel

        for f in write_kernel(out, made, None):
            print(f"wrote {f}")
    elif as_json:
        print(json.dumps(made.built.kernel.launch_json(made.space.problem) | {"ptx": made.built.kernel.ptx}, indent=2))
    else:
        print(made.built.kernel.ptx, end="")


@app.command("verify")
def verify_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    seed: Annotated[int, typer.Option(help="of the inputs")] = 0,
    as_json: JSON = False,
) -> None:
    """Run the kernel of one candidate in the emulator and compare it with the machine's reference.

    Example: `tinygpu verify matmul_simt --shape m=100,n=77,k=50 --device a100 bm=64 bn=64`
    """
    from dataclasses import asdict

    from tinygpu.cli.printing import verification_report
    from tinygpu.ptx.verification import verify

    made = _point_of(machine, shape, device, point, dtype, major, ld, align, option)
    result = verify(made.built.kernel, made.space.machine, made.space.problem, seed=seed, thorough=True)
    if as_json:
        print(json.dumps({"passed": result.passed, "checks": [asdict(c) for c in result.checks]}, indent=2))
    else:
        print("candidate " + " ".join(f"{k}={v}" for k, v in made.built.kernel.point))
        verification_report(result)
    if not result.passed:
        raise typer.Exit(1)


@app.command("check")
def check_command(
    machine: MACHINE,
    shape: Annotated[str, typer.Option("--shape", help="one problem to check on (default: random ones)")] = "",
    device: Annotated[str, typer.Option("--device", "-d", help="one GPU (default: several)")] = "",
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    problems: Annotated[int, typer.Option(help="how many random problems, without --shape")] = 8,
    candidates: Annotated[int, typer.Option(help="how many candidates each check draws")] = 16,
    tiers: Annotated[str, typer.Option(help="which tiers, as in 1,2,5 (default: all)")] = "",
    seed: Annotated[int, typer.Option(help="of every random draw")] = 0,
    as_json: JSON = False,
) -> None:
    """Property-test a machine: declaration, partitions, heuristics, legality, kernels, and what constraints are worth.

    Examples: `tinygpu check my_machine.py:Softplus`, `tinygpu check matmul_simt --shape m=64,n=33,k=20 --tiers 1,2,5`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.problems import problems as problems_of
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import tiers as read_tiers
    from tinygpu.testing import run_check

    ok = True
    reports = []
    chosen = read_tiers(tiers)
    settings: dict[str, Any] = {"candidates": candidates, "seed": seed} | ({"tiers": chosen} if chosen else {})
    if device:
        settings["devices"] = (device,)
    given = family(machine)
    known = {}
    if shape:
        accepted, _ = problems_of(given, asked(shape, dtype, major, ld, align, option))
        known = {m: (p,) for m, p in accepted}
    for m in known or given.machines:
        report = run_check(m, problems=known.get(m, problems), **settings)
        ok = ok and report.ok
        reports.append(report)
        if not as_json:
            print(report)
    if as_json:
        print(json.dumps([r.to_json() for r in reports], indent=2))
    if not ok:
        raise typer.Exit(1)


@app.command("calibrate")
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


@app.command("emulate")
def emulate_command(
    files: Annotated[list[Path], typer.Argument(help="PTX of any compiler")],
    grid: Annotated[str, typer.Option(help="CTAs: 64 or 64,64 or 64,64,1")],
    block: Annotated[str, typer.Option(help="threads of a CTA: 256 or 16,16")],
    arg: Annotated[list[str], typer.Option(help="name=value, one per parameter, in order or by its name")] = [],
    cluster: Annotated[str, typer.Option(help="CTAs of a cluster: 2,1,1")] = "1",
    entry: Annotated[str | None, typer.Option(help="name of the kernel (default: the only one)")] = None,
    smem: Annotated[int, typer.Option(help="bytes of dynamic shared memory")] = 0,
    check: Annotated[str, typer.Option(help="collect all faults, raise the first, or off")] = "collect",
    order: Annotated[str, typer.Option(help="when asynchronous work lands: late, early or random")] = "late",
    seed: Annotated[int, typer.Option(help="of random contents and of --order random")] = 0,
    ctas: Annotated[str, typer.Option(help="run only these: first,last,17")] = "",
    lines: Annotated[bool, typer.Option("--lines", help="count every line of the PTX")] = False,
    device: Annotated[str, typer.Option("--device", "-d", help="a GPU: what its L1, L2 and DRAM move")] = "",
    ctas_per_sm: Annotated[int, typer.Option(help="CTAs resident on one of its SMs")] = 1,
    save: Annotated[list[str], typer.Option(help="c=out.npy: write an array that the kernel left")] = [],
    compare: Annotated[list[str], typer.Option(help="c=want.npy: compare an array with a file")] = [],
    rtol: Annotated[float | None, typer.Option(help="relative error that --compare allows (by type)")] = None,
    atol: Annotated[float | None, typer.Option(help="absolute error that --compare allows (as --rtol)")] = None,
    as_json: JSON = False,
) -> None:
    """Run a PTX kernel on the CPU, check every access of it, and count what it does.

    Contents of arrays are random, zeros, ones, arange, integers:f16[256][-3..3] or empty (uninitialised). Other
    arguments: 1024, f32:0.5, x.npy, null, pointer:a+256, bytes:00ff, sparse:f32[4294967296] windows=0..64,-64.., and
    tensormap:a box=64,128 swizzle=128B over the argument a, fastest dimension first.

    Ends with 0 where all is well, 1 where there are faults or wrong values, 2 where the input cannot be run.

    Examples:

    `tinygpu emulate add.ptx --grid 4 --block 256 --arg x=random:f32[1000] --arg y=zeros:f32[1000] --arg n=1000`

    `tinygpu emulate mm.ptx --grid 4,4 --block 256 --arg a.npy --arg b.npy --arg c=empty:f32[99,99] --compare c=ab.npy`
    """
    from tinygpu.api.emulate import emulate_files
    from tinygpu.cli.emulation import (
        compared,
        emulated_json,
        emulated_report,
        named_files,
        numbers,
        one_of,
        refusing,
        saved,
    )

    with refusing():
        wanted, targets = named_files("--compare", compare), named_files("--save", save)
        done = emulate_files(
            files,
            arguments=arg,
            grid=numbers("--grid", grid),
            block=numbers("--block", block),
            cluster=numbers("--cluster", cluster),
            entry=entry,
            dynamic_smem=smem,
            check=one_of("--check", check, ("raise", "collect", "off")),
            order=one_of("--order", order, ("late", "early", "random")),
            seed=seed,
            ctas=ctas,
            results=[*wanted, *targets],
            device=device,
            ctas_per_sm=ctas_per_sm,
        )
        comparisons = compared(done, wanted, rtol, atol)
        written = saved(done, targets)
    if as_json:
        print(json.dumps(emulated_json(done, comparisons, written), indent=2))
    else:
        emulated_report(done, comparisons, written, every_line=lines)
    if done.faults or not all(c.ok for c in comparisons):
        raise typer.Exit(1)


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


def _point_of(machine: str, shape: str, device: str, point: list[str], *words: list[str]) -> Any:
    """The kernel of the first machine of a family that admits the point."""
    from tinygpu.api.emit import NotAdmitted, emit, spaces
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    reasons = []
    for s in spaces(family(machine), asked(shape, *words), find(device)):
        try:
            return emit(s, read_point(point))
        except NotAdmitted as error:
            reasons.append(f"{s.machine.__name__} does not admit this point: {error}")
    raise NotAdmitted("; ".join(reasons))
