"""`tinygpu`: the commands, in the order in which they are listed."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from tinygpu import __version__
from tinygpu.cli.commands.bundling import bundle_command
from tinygpu.cli.commands.calibrating import calibrate_command
from tinygpu.cli.commands.checking import check_command
from tinygpu.cli.commands.emulating import emulate_command
from tinygpu.cli.commands.forecasts import predict_command, roofline_command, timeline_command
from tinygpu.cli.commands.kernels import emit_command, verify_command
from tinygpu.cli.commands.listing import devices_command, list_command, machines_command, show_command
from tinygpu.cli.commands.reporting import report_command
from tinygpu.cli.commands.running import run_command
from tinygpu.cli.commands.spaces import explain_command, space_command
from tinygpu.cli.commands.training import train_command
from tinygpu.cli.commands.tuning import tune_command

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Small machines for one operation: searched under constraints, emitted as PTX, verified in an emulator.",
)


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tinygpu {__version__}")
        raise typer.Exit


@app.callback()
def options_of_all_commands(
    version: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help="print it")] = False,
) -> None:
    """What stands before a command."""


app.command("list")(list_command)
app.command("machines")(machines_command)
app.command("show")(show_command)
app.command("devices")(devices_command)
app.command("space")(space_command)
app.command("explain")(explain_command)
app.command("tune")(tune_command)
app.command("report")(report_command)
app.command("train")(train_command)
app.command("bundle")(bundle_command)
app.command("predict")(predict_command)
app.command("timeline")(timeline_command)
app.command("roofline")(roofline_command)
app.command("emit")(emit_command)
app.command("run")(run_command)
app.command("verify")(verify_command)
app.command("check")(check_command)
app.command("calibrate")(calibrate_command)
app.command("emulate")(emulate_command)


def main() -> None:
    """Runs one command. Exit codes: 0 fine, 1 what was asked for is impossible or wrong, 2 usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")  # a terminal that lacks a character shows "?" in its place
    # Programs, expressions and spaces live until the command ends: looking for what nobody needs finds little.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        app()
    except Exception as error:
        if not expected(error):
            raise
        from tinygpu.users_code import with_place

        print(f"tinygpu: {with_place(error)}", file=sys.stderr)
        sys.exit(1)


def expected(error: Exception) -> bool:
    """Whether an error is an answer to the user, not a fault of ours."""
    from tinygpu.language.parameters import DeclarationError
    from tinygpu.ptx.assembling.assembler import AssemblerError
    from tinygpu.ptx.lowering.context import LoweringError

    return isinstance(error, (ValueError, DeclarationError, AssemblerError, LoweringError, OSError))
