"""Machines that ship are traced where they are used, and not where they are imported: here every structure of each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tinygpu.api.machines import PLANS, SHIPPED, family, machines_of
from tinygpu.language import Machine
from tinygpu.language.trace import trace_default

MACHINES = sorted({m for name in (*SHIPPED, *PLANS) for m in machines_of(family(name).machines[0])}, key=str)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.__name__)
def test_every_structure_is_traced_and_can_work(machine: type[Machine]) -> None:
    traces = trace_default(machine)
    assert [t.program.structure for t in traces] == list(machine.structures())


@pytest.mark.end_to_end
def test_what_is_only_imported_is_not_traced() -> None:
    program = (
        "from tinygpu.language import trace; import tinygpu.machines.elementwise as m;"
        "before = trace._trace.cache_info().misses; trace.trace_default(m.Axpby);"
        "print(before, trace._trace.cache_info().misses > 0)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["0", "True"]
