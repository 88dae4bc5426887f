"""Programs as JSON, and back.

Every value of a program is written with the name of its class and its fields, expressions as text (`program.formula`),
and instructions with the path of their class, so that a user's own instruction comes back as what it was. Values that
many statements share (tensors, buffers, partitions, instructions) are written once, under "shared".

Loading imports the modules that define the program's instructions: load only what you would run.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from tinygpu.dtypes import DTYPES, DType, dtype
from tinygpu.expressions import Expr
from tinygpu.language.instruction import Fragment, Instruction
from tinygpu.language.memories import MEMORIES, Memory, memory
from tinygpu.language.partition import Condition, Mode, Partition
from tinygpu.language.roles import Pipeline, Role, Token
from tinygpu.language.route import Route
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Buffer, Tile
from tinygpu.program import nodes as n
from tinygpu.program.formula import FormulaError, read, write
from tinygpu.program.program import Program

SCHEMA = 2

_CLASSES: tuple[type, ...] = (
    Program,
    n.ScalarArgument,
    n.Constant,
    n.Load,
    n.Store,
    n.Copy,
    n.Apply,
    n.Multiply,
    n.Reduce,
    n.Loop,
    n.Fill,
    n.Drain,
    n.Pipelined,
    n.Gather,
    n.Scope,
    n.InRole,
    n.Axis,
    n.Grid,
    Role,
    Pipeline,
    Token,
    Tensor,
    Tile,
    Buffer,
    Partition,
    Mode,
    Condition,
    Fragment,
    Route,
)
_NAMED: Mapping[str, type] = {c.__name__: c for c in _CLASSES}
# Written once and referred to by number.
_SHARED: tuple[type, ...] = (Tensor, Buffer, Partition, Instruction, Route)


class SaveError(ValueError):
    """A program that cannot be written, or text that is not a saved program; the message says which part of it."""


def save_program(program: Program) -> dict[str, Any]:
    """The program as JSON values; raises SaveError for a part that could not be loaded again."""
    writer = _Writer()
    body = writer.value(program, program.machine)
    return {"schema": SCHEMA, "shared": writer.shared, "program": body}


def load_program(data: Mapping[str, Any]) -> Program:
    """The program that `save_program` wrote; raises SaveError where `data` is not one."""
    if not isinstance(data, Mapping) or not {"schema", "shared", "program"} <= set(data):
        raise SaveError("a saved program has the entries schema, shared and program")
    if data["schema"] != SCHEMA:
        raise SaveError(f"this version reads saved programs of schema {SCHEMA}, not {data['schema']!r}")
    reader = _Reader()
    for entry in data["shared"]:
        reader.shared.append(reader.value(entry))
    program = reader.value(data["program"])
    if not isinstance(program, Program):
        raise SaveError(f"the entry program holds a {type(program).__name__}, not a Program")
    return program


class _Writer:
    def __init__(self) -> None:
        self.shared: list[Any] = []
        self.numbers: dict[str, int] = {}

    def value(self, value: Any, where: str) -> Any:
        if isinstance(value, Expr):
            return {"expr": write(value)}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, (tuple, list)):
            return [self.value(v, where) for v in value]
        if isinstance(value, DType) and value in DTYPES:
            return {"dtype": value.name}
        if isinstance(value, Memory) and value in MEMORIES:
            return {"memory": value.name}
        if is_dataclass(value) and not isinstance(value, type):
            return self.object(value, where)
        raise SaveError(
            f"{where} holds {value!r}, which cannot be saved: "
            "it is no number, text, expression or value of the language"
        )

    def object(self, value: Any, where: str) -> Any:
        cls = type(value)
        written = {"is": cls.__name__ if _NAMED.get(cls.__name__) is cls else _path(cls, where)}
        for f in fields(value):
            written[f.name] = self.value(getattr(value, f.name), f"{where}, {cls.__name__}.{f.name}")
        if not isinstance(value, _SHARED):
            return written
        key = json.dumps(written)
        if key not in self.numbers:
            self.numbers[key] = len(self.shared)
            self.shared.append(written)
        return {"shared": self.numbers[key]}


def _path(cls: type, where: str) -> str:
    """module:name of an instruction's class, checked to lead back to it."""
    if not issubclass(cls, Instruction):
        raise SaveError(f"{where} holds a {cls.__name__}, which is neither a value of the language nor an Instruction")
    path = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = _find(path)
    except SaveError:
        found = None
    if found is not cls:
        raise SaveError(
            f"{where} uses the instruction {cls.__qualname__}, which cannot be imported from {cls.__module__}; "
            "define it at the top of a module"
        )
    return path


def _find(path: str) -> type:
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        raise SaveError(
            f"the saved program uses {name} of {module}, which cannot be imported; import its file first"
        ) from None
    if not isinstance(found, type) or not issubclass(found, Instruction):
        raise SaveError(f"the saved program uses {name} of {module} as an instruction, and it is none")
    return found


class _Reader:
    def __init__(self) -> None:
        self.shared: list[Any] = []
        self.formulas: dict[str, Expr] = {}

    def value(self, data: Any) -> Any:
        if isinstance(data, list):
            return tuple(self.value(v) for v in data)
        if not isinstance(data, Mapping):
            return data
        match data:
            case {"is": str(name)}:
                return self.object(name, data)
            case {"expr": str(text), **rest} if not rest:
                return self.formula(text)
            case {"shared": int(number), **rest} if not rest and 0 <= number < len(self.shared):
                return self.shared[number]
            case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
                return float(text)
            case {"dtype": str(name), **rest} if not rest and name in {t.name for t in DTYPES}:
                return dtype(name)
            case {"memory": str(name), **rest} if not rest and name in {m.name for m in MEMORIES}:
                return memory(name)
        raise SaveError(f"the saved program holds {json.dumps(data)[:80]}, which is no value of this schema")

    def formula(self, text: str) -> Expr:
        if text not in self.formulas:
            try:
                self.formulas[text] = read(text)
            except FormulaError as error:
                raise SaveError(f"the saved program holds an expression that cannot be read: {error}") from None
        return self.formulas[text]

    def object(self, name: str, data: Mapping[str, Any]) -> Any:
        cls = _find(name) if ":" in name else _NAMED.get(name)
        if cls is None:
            raise SaveError(f"the saved program holds a {name}, which is no value of the language")
        given = {k: self.value(v) for k, v in data.items() if k != "is"}
        known = fields(cls)
        unknown = sorted(set(given) - {f.name for f in known})
        needed = [f.name for f in known if f.default is MISSING and f.default_factory is MISSING]
        missing = [name for name in needed if name not in given]
        if unknown or missing:
            what = f"has no {unknown[0]}" if unknown else f"lacks its {missing[0]}"
            raise SaveError(f"the saved program holds a {cls.__name__} that does not fit this version: it {what}")
        return cls(**given)
