"""`tinygpu list`, `machines`, `show` and `devices`: what there is."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tinygpu.cli.options import JSON, MACHINE


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


def show_command(machine: MACHINE, as_json: JSON = False) -> None:
    """Show a machine: parameters, instructions, constraints, and its program for every structure.

    Examples: `tinygpu show matmul_ampere`, `tinygpu show my_machine.py:Softplus`
    """
    from tinygpu.api.machines import family
    from tinygpu.cli.show import show, show_json

    for m in family(machine).machines:
        print(json.dumps(show_json(m), indent=2)) if as_json else show(m)


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
