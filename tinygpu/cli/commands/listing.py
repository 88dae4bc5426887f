"""`tinygpu list`, `machines`, `show` and `devices`: what there is."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tinygpu.cli.options import ALIGN, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION, POINT


def list_command(
    what: Annotated[str, typer.Argument(help="machines, instructions, devices or strategies; else all of them")] = "",
    as_json: JSON = False,
) -> None:
    """List what can be asked for by name, with the package that brings it: tinyGPU, or one that is installed beside it.

    Examples: `tinygpu list`, `tinygpu list strategies`
    """
    from dataclasses import asdict

    from tinygpu.api.offers import offers, warnings
    from tinygpu.cli.printing import console, table
    from tinygpu.extensions import GROUPS

    groups = [what] if what else list(GROUPS)
    found = [offer for group in groups for offer in offers(group)]
    if as_json:
        print(json.dumps([asdict(offer) for offer in found], indent=2))
    else:
        for group in groups:
            rows = table(group, "from", "what it is")
            for offer in found:
                if offer.group == group:
                    rows.add_row(offer.name, offer.whose, offer.what or "cannot be used")
            console.print(rows)
    wrong = [*(o.wrong for o in found if o.wrong), *(w for group in groups for w in warnings(group))]
    for sentence in wrong:
        print(f"tinygpu: {sentence}", file=sys.stderr)
    if wrong:
        raise typer.Exit(1)


def machines_command(as_json: JSON = False) -> None:
    """List the machines, plans and families that ship.

    Example: `tinygpu machines`
    """
    from tinygpu.api.machines import FAMILIES, PLANS, SHIPPED, family
    from tinygpu.cli.printing import console, table

    found = {name: family(name).machines[0] for name in (*SHIPPED, *PLANS)}
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


def show_command(
    machine: MACHINE,
    point: POINT = [],
    layouts: Annotated[
        bool, typer.Option("--layouts", help="who holds what and lies where; in numbers with --shape and --device")
    ] = False,
    shape: Annotated[str, typer.Option("--shape", help="with --device: one candidate for these dims")] = "",
    device: Annotated[str, typer.Option("--device", "-d", help="with --shape: the candidate's GPU")] = "",
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    as_json: JSON = False,
) -> None:
    """Show a machine: parameters, instructions, constraints, its program, what is proved of its hand-overs; or layouts.

    With --shape and --device, the program of one candidate, and what is proved of that.

    `--layouts` alone is symbolic, of the machine's first structure (or the one that name=value chooses). With --shape
    and --device the layouts are those of one candidate, with pictures; parameters that are left out are chosen by the
    predictor.

    Examples: `tinygpu show matmul_ampere`, `tinygpu show my_machine.py:Softplus`, `tinygpu show matmul_ampere --layouts
    --shape m=512,n=512,k=512 --device a100 bm=64 bn=64`, `tinygpu show matmul_hopper --shape m=512,n=512,k=512
    --device h100 schedule=pingpong`
    """
    from tinygpu.api.machines import family
    from tinygpu.cli.show import show, show_candidate, show_json

    words = (dtype, major, ld, align, option)
    if layouts:
        _show_layouts(machine, shape, device, point, words, as_json)
        return
    if bool(shape) != bool(device) or (not shape and (point or any(words))):
        named = "one candidate is named by --shape and --device, with the rest of its problem and name=value"
        raise typer.BadParameter(named)
    if shape:
        from tinygpu.cli.commands.kernels import point_of

        made = point_of(machine, shape, device, point, *words)
        show_candidate(made)
        return
    for m in family(machine).machines:
        print(json.dumps(show_json(m), indent=2)) if as_json else show(m)


def _show_layouts(
    machine: str, shape: str, device: str, point: list[str], words: tuple[list[str], ...], as_json: bool
) -> None:
    from tinygpu.api.layouts import layouts_of_candidate, layouts_of_machine
    from tinygpu.api.machines import family, machines_of
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.cli.layouts import layouts_json, layouts_text
    from tinygpu.devices import device as find

    if bool(shape) != bool(device):
        given, missing = ("--shape", "--device") if shape else ("--device", "--shape")
        raise typer.BadParameter(f"layouts with numbers are for a problem on a device: {given} needs {missing} too")
    if any(words) and not shape:
        raise typer.BadParameter("what is said of a problem's tensors needs the problem: give --shape and --device too")
    chosen = read_point(point)
    if shape:
        found = list(layouts_of_candidate(family(machine), asked(shape, *words), find(device), chosen))
    else:
        found = [layouts_of_machine(m, chosen) for d in family(machine).machines for m in machines_of(d)]
    for k, layouts in enumerate(found):
        if as_json:
            print(json.dumps(layouts_json(layouts), indent=2))
        else:
            print(("\n" if k else "") + layouts_text(layouts))


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
