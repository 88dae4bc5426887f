"""Clones of shipped instructions and machines: the same facts under other names, derived from the families alone."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import tinygpu.machines
from tinygpu.api.machines import SHIPPED
from tinygpu.language import instruction as families
from tinygpu.language.instruction import Group, Instruction
from tinygpu.language.machine import Machine
from tinygpu.ptx import isa

# What a class statement and `dataclass` write into a class by themselves.
_MADE = {
    "__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__init__", "__repr__", "__eq__", "__hash__",
    "__setattr__", "__delattr__", "__match_args__", "__replace__", "__firstlineno__", "__static_attributes__",
    "__dataclass_fields__", "__dataclass_params__",
}  # fmt: skip


def family_of(kind: type[Instruction]) -> type[Instruction]:
    """The nearest class of the language that an instruction derives from."""
    return next(base for base in kind.__mro__ if base.__module__.startswith(families.__name__))


@cache
def clone(kind: type[Instruction]) -> type[Instruction]:
    """A class that says the same, with another name and label, of which the family is the only base."""
    family = family_of(kind)
    own = kind.__mro__[: kind.__mro__.index(family)]
    facts: dict[str, Any] = {}
    for base in reversed(own):
        facts |= {name: value for name, value in vars(base).items() if name not in _MADE}
    inherited = {f.name for f in dataclasses.fields(family)}
    fields = [(f.name, f.type, f) for f in dataclasses.fields(kind) if f.name not in inherited]
    for name, _, _ in fields:
        facts.pop(name, None)
    said = kind.label.fget  # type: ignore[attr-defined]
    facts["label"] = property(lambda self: f"own {said(self)}")
    namespace = {name: value for name, value in facts.items() if not isinstance(value, types.MemberDescriptorType)}
    written = [vars(b)["__init__"] for b in own if "__init__" in vars(b) and not b.__dataclass_params__.init]  # type: ignore[attr-defined]
    namespace |= {"__init__": written[0]} if written else {}
    made = dataclasses.make_dataclass(
        f"Own{kind.__name__[::-1].title()}", fields, bases=(family,), namespace=namespace, frozen=True, eq=False,
        init=not written,
    )  # fmt: skip
    made.__module__ = __name__
    return made


class Isa:
    """`tinygpu.ptx.isa`, of clones."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(isa, name)
        if name == "arithmetic":
            return lambda *args, **more: self.group(found(*args, **more))
        if not (isinstance(found, type) and issubclass(found, Instruction)):
            return found
        self.taken.add(name)
        return clone(found)

    def group(self, found: Group) -> Group:
        """The group of clones of its members."""
        return Group(found.title, tuple(self.alike(member) for member in found))

    def alike(self, one: Instruction) -> Any:
        """A clone with the same fields."""
        self.taken.add(type(one).__name__)
        return clone(type(one))(**{f.name: getattr(one, f.name) for f in dataclasses.fields(one) if f.init})


CLONES = Isa()
_IMPORTED = re.compile(r"^from tinygpu\.ptx import isa$", re.MULTILINE)


def _cloned_module(name: str) -> types.ModuleType:
    """A module of machines whose instructions, and those of the modules that it uses, are clones."""
    path = Path(tinygpu.machines.__file__ or "").parent / f"{name}.py"
    source = path.read_text()
    for used in sorted(path.parent.glob("*.py")):
        if re.search(rf"^from tinygpu\.machines(\.{used.stem} import| import {used.stem}$)", source, re.MULTILINE):
            _cloned(used.stem)
    module = types.ModuleType(f"cloned_machines.{name}")
    sys.modules[module.__name__] = module
    source = _IMPORTED.sub("from cloned_instructions import CLONES as isa", source)
    source = source.replace("from tinygpu.machines.", "from cloned_machines.")
    source = source.replace("from tinygpu.machines import", "from cloned_machines import")
    exec(compile(source, str(path), "exec"), vars(module))
    return module


@cache
def _cloned(name: str) -> types.ModuleType:
    package = sys.modules.setdefault("cloned_machines", types.ModuleType("cloned_machines"))
    module = _cloned_module(name)
    setattr(package, name, module)
    return module


def pair(name: str) -> tuple[type[Machine], type[Machine]]:
    """A shipped machine, and its copy with clones in the place of its instructions."""
    module, kind = SHIPPED[name].split(":")
    shipped, copied = importlib.import_module(module), _cloned(module.rpartition(".")[2])
    return getattr(shipped, kind), getattr(copied, kind)
