"""A command that ends with whoever started it, even when that was killed: a process of ours stands beside it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tinygpu.processes.serving import Line
from tinygpu.processes.worker import Worker, started


def tied(command: Sequence[str], log: Path) -> Worker:
    """Runs a command whose output goes to the end of a file; the worker says its exit status once it has ended."""
    worker = started("tinygpu.processes.command:serve")
    worker.send((tuple(command), str(log)))
    return worker


def serve(line: Line) -> None:
    """The process beside the command: both are in one session, which ends when the line does."""
    command, log = line.receive()
    with open(log, "ab") as said:
        try:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said).returncode
        except OSError as error:
            said.write(f"{command[0]} cannot be run: {error.strerror}\n".encode())
            status = 1
    line.send(status)
