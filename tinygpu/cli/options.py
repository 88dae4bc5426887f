"""Arguments and options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

MACHINE = Annotated[str, typer.Argument(help="a machine or family of `tinygpu list`, or path/to/file.py:ClassName")]
SHAPE = Annotated[str, typer.Option("--shape", help="every dim of the machine: m=4096,n=4096,k=4096")]
DEVICE = Annotated[str, typer.Option("--device", "-d", help="a GPU of `tinygpu list devices`, or a device file")]
DTYPE = Annotated[list[str], typer.Option("--dtype", help="f16 for all inputs, or a=f16 per tensor")]
MAJOR = Annotated[list[str], typer.Option("--major", help="a=col: column-major operands")]
LD_HELP = "a=4104: leading dimension in elements; a.0=65536: stride of axis 0"
LD = Annotated[list[str], typer.Option("--ld", "--stride", help=LD_HELP)]
ALIGN = Annotated[list[str], typer.Option("--align", help="a=2: alignment of a pointer in bytes (16)")]
OPTION = Annotated[list[str], typer.Option("--option", help="activation=relu: an option of the machine")]
JSON = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
POINT = Annotated[list[str], typer.Argument(help="name=value ...: parameters of the candidate")]
