"""What evaluations of a machine's candidates depend on: the key under which a cache keeps them between runs."""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path

import tinygpu
from tinygpu.language.declared import Declared
from tinygpu.language.machine import Machine
from tinygpu.language.plan import Plan
from tinygpu.language.step import Step
from tinygpu.search.cache import Circumstances
from tinygpu.spaces.build import MachineSpace


def circumstances(space: MachineSpace, value: str, *, driver: str = "", assembler: str = "") -> Circumstances:
    """Those of a space's candidates.

    value      what is evaluated, in words: "predicted seconds", "measured seconds"
    driver     its version and the GPU, where one takes part
    assembler  its version, where it takes part
    """
    return Circumstances(
        value=value,
        machine=source_digest(space.machine),
        code=code_digest(),
        problem=json.dumps(space.problem.to_json(), sort_keys=True),
        device=hashlib.sha256(json.dumps(space.device.to_json(), sort_keys=True).encode()).hexdigest(),
        driver=driver,
        assembler=assembler,
    )


def source_digest(machine: type[Declared]) -> str:
    """SHA-256 over the files that define a machine, or a plan and its steps, and the classes that it is made from."""
    text = hashlib.sha256(machine.__qualname__.encode())
    for cls in machine.__mro__:
        if issubclass(cls, (Machine, Plan)) and cls not in (Machine, Plan):
            text.update(Path(inspect.getfile(cls)).read_bytes())
    for step in machine.declarations(Step):
        text.update(source_digest(step.machine).encode())
    return text.hexdigest()


def code_digest() -> str:
    """SHA-256 over the sources of this package: whatever turns a candidate into a kernel, or judges it."""
    text = hashlib.sha256()
    rooms = (Path(str(room)) for room in tinygpu.__path__)
    for room in [*rooms, *(Path(f).parent for f in _other_rooms())]:
        for path in sorted(room.rglob("*.py")):
            text.update(path.name.encode() + path.read_bytes())
    return text.hexdigest()


def _other_rooms() -> list[str]:
    """Where the rooms lie that a checkout keeps beside the package."""
    import tinygpu.machines
    import tinygpu.ptx
    import tinygpu.search

    return [str(room.__file__) for room in (tinygpu.machines, tinygpu.ptx, tinygpu.search)]
