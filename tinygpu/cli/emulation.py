"""`tinygpu emulate`: reading its words, and its report for people."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

from tinygpu.api.arguments import ArgumentError
from tinygpu.api.emulate import Comparison, Emulated, compare
from tinygpu.cli.printing import console, table
from tinygpu.files.writing import check_replaceable, write_file
from tinygpu.ptx.emulator import Fault, Report, UnsupportedInstruction
from tinygpu.ptx.emulator.report import REMEDIES, one_line, plural

T = TypeVar("T", bound=str)


@contextmanager
def refusing() -> Iterator[None]:
    """Input that cannot be run ends the command with its sentence and status 2."""
    try:
        yield
    except (ValueError, UnsupportedInstruction, OSError) as error:
        print(f"tinygpu: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def numbers(where: str, text: str) -> tuple[int, ...]:
    """64,64 as numbers."""
    words = text.split(",")
    if len(words) > 3 or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ArgumentError(f"{where} takes one to three numbers from 1 on, as in 64,64, not {text!r}")
    return tuple(int(word) for word in words)


def one_of(where: str, text: str, choices: tuple[T, ...]) -> T:
    """One of some words."""
    for choice in choices:
        if text == choice:
            return choice
    raise ArgumentError(f"{where} is {', '.join(choices[:-1])} or {choices[-1]}, not {text!r}")


def named_files(where: str, words: Sequence[str]) -> dict[str, Path]:
    """y=FILE.npy words: the file of each array. Folders must be there; what is read also needs the file."""
    out: dict[str, Path] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not name or not equals or not text.endswith(".npy"):
            raise ArgumentError(f"{where} takes name=FILE.npy, not {word!r}")
        if name in out:
            raise ArgumentError(f"{where} gives {name} twice")
        path = Path(text)
        if not path.parent.is_dir():
            raise ArgumentError(f"there is no folder {path.parent}")
        reads = where in ("--compare", "--input")
        if reads and not path.is_file():
            raise ArgumentError(f"there is no file {path}")
        if not reads:
            check_replaceable(path, (b"\x93NUMPY",), "an array")
        out[name] = path
    return out


def compared(
    done: Emulated, wanted: Mapping[str, Path], rtol: float | None, atol: float | None
) -> tuple[Comparison, ...]:
    """Each array beside its file."""
    return tuple(compare(name, done.arguments.array(name), path, rtol, atol) for name, path in wanted.items())


def saved(done: Emulated, targets: Mapping[str, Path]) -> tuple[Path, ...]:
    """Writes each array to its file."""
    for name, path in targets.items():
        save_array(path, done.arguments.array(name))
    return tuple(targets.values())


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Writes an array to a .npy file, whole or not at all."""
    held = io.BytesIO()
    np.save(held, array)
    write_file(path, held.getvalue(), (b"\x93NUMPY",), "an array")


def emulated_json(done: Emulated, comparisons: Sequence[Comparison], written: Sequence[Path]) -> dict[str, Any]:
    """Everything as data; JSON has no NaN and no infinities, so these are texts."""

    def plain(value: Any) -> Any:
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return done.to_dict() | {
        "seconds": done.seconds,
        "comparisons": [{k: plain(v) for k, v in asdict(c).items()} | {"ok": c.ok} for c in comparisons],
        "saved": [str(path) for path in written],
    }


def emulated_report(
    done: Emulated, comparisons: Sequence[Comparison], written: Sequence[Path], *, every_line: bool
) -> None:
    """Verdict, faults with what helps, then counts."""
    report = done.report
    for fault in done.faults:
        fault_report(fault)
    if report is None:
        console.print(f"[bold]{done.kernel}[/bold] stopped at its first fault after {done.seconds:.2f} s")
    else:
        for advisory in report.advisories:
            console.print(f"advisory: {escape(str(advisory))}")
        verdict = f"[bold]{plural(len(report.faults), 'fault')}[/bold]" if report.faults else "no fault"
        console.print(f"[bold]{report.kernel}[/bold]: emulated in {done.seconds:.2f} s, {verdict}")
        counts_report(report, every_line)
    for comparison in comparisons:
        console.print(escape(str(comparison)) if comparison.ok else f"[bold]{escape(str(comparison))}[/bold]")
    for path in written:
        console.print(f"wrote {path}")


def fault_report(fault: Fault) -> None:
    """One fault: where, who, what, and what helps."""
    count = f", and {fault.count - 1:,} threads more" if fault.count > 1 else ""
    who = f"CTA {fault.cta}" + ("" if fault.thread is None else f", thread {fault.thread}")
    console.print(f"[bold red]{fault.kind}[/bold red] at PTX line {fault.line}, {who}{count}")
    console.print(f"    {escape(one_line(fault.line_text))}")
    console.print(f"    {escape(fault.sentence)}")
    if fault.kind in REMEDIES:
        console.print(f"    fix: {REMEDIES[fault.kind]}")


def counts_report(report: Report, every_line: bool) -> None:
    """What was counted: totals, memory, and the lines that are asked for."""
    for text in report.summary():
        console.print(escape(text))
    rows = table("memory", "requests>", "bytes>", "counted>", "per request>")
    for row in report.memory_rows():
        counted = "" if row.units is None else f"{row.units:,} {row.unit}"
        each = "" if row.per_request is None else f"{row.per_request:.2f}"
        rows.add_row(row.name, f"{row.requests:,}", f"{row.bytes:,}", counted, each)
    if rows.row_count:
        console.print(rows)
    for text in report.traffic_summary():
        console.print(text)
    if not every_line:
        return
    listed = table("line>", "executed>", "lanes>", "requests>", "sectors>", "wavefronts>", "bytes>", "PTX")
    for n, c, text in report.listed_lines(every=True):
        memory = (f"{v:,}" if v else "" for v in (c.requests, c.sectors, c.wavefronts, c.bytes))
        listed.add_row(str(n), f"{c.executed:,}", f"{c.lanes:.1f}", *memory, escape(one_line(text)))
    console.print(listed)
