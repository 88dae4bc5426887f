"""Programs as JSON, and back.

Every value of a program is written with the name of its class and its fields, expressions as text
(`expressions.formula`), and instructions, and statements and tile schedulers that are not ours, with the path of their
class, so that a user's own comes back as what it was. Values that many statements share (tensors, buffers, partitions,
instructions) are written once, under "shared".

Loading is data only: it imports nothing, and makes only instructions and statements of classes that exist already.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints

from tinygpu.dtypes import VALUES, DType, dtype
from tinygpu.expressions import Expr
from tinygpu.expressions.formula import FormulaError, read, write
from tinygpu.files import FileError
from tinygpu.files.error import excerpt
from tinygpu.files.shape import fits
from tinygpu.language.buffer import Buffer
from tinygpu.language.exchange import ExchangePlan
from tinygpu.language.instruction import Instruction
from tinygpu.language.memories import MEMORIES, Memory, memory
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.roles import Pipeline, Role, Token
from tinygpu.language.route import Route
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Pick, Tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.schedulers.launch_control import LaunchControl, TakenOver
from tinygpu.schedulers.scheduler import TileScheduler
from tinygpu.schedulers.sliced import OneTile, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK

SCHEMA = 10

_CLASSES: tuple[type, ...] = (
    Program,
    n.ScalarArgument,
    *(c for c in vars(n).values() if isinstance(c, type) and issubclass(c, n.Statement) and is_dataclass(c)),
    n.Merge,
    ExchangePlan,
    n.Axis,
    n.Grid,
    OneTile,
    StaticPersistent,
    StreamK,
    LaunchControl,
    TakenOver,
    Role,
    Pipeline,
    Token,
    Tensor,
    Memory,
    Tile,
    Pick,
    Buffer,
    Partition,
    Layout,
    Step,
    Condition,
    Route,
)
_NAMED: Mapping[str, type] = {c.__name__: c for c in _CLASSES}
# Classes of which a user may have their own, and what one is called.
OPEN_WORDS: Mapping[type, str] = {Instruction: "instruction", n.Statement: "statement", TileScheduler: "tile scheduler"}
OPEN = tuple(OPEN_WORDS)
# Written once and referred to by number.
_SHARED: tuple[type, ...] = (Tensor, Buffer, Partition, Instruction, Route)


class SaveError(ValueError):
    """A program that cannot be written; the message says which part of it."""


def save_program(program: Program) -> dict[str, Any]:
    """The program as JSON values; raises SaveError for a part that could not be loaded again."""
    writer = _Writer()
    body = writer.value(program, program.machine)
    return {"schema": SCHEMA, "shared": writer.shared, "program": body, "checksum": _checksum(writer.shared, body)}


def load_program(data: Any) -> Program:
    """The program that `save_program` wrote. Raises FileError where `data` is not one.

    Nothing is imported: instructions of one's own are those of classes that exist already. The module that defines them
    is imported before, as it would be to run the program.
    """
    if not isinstance(data, Mapping) or not {"schema", "shared", "program"} <= set(data):
        raise FileError("a saved program has the entries schema, shared, program and checksum")
    if data["schema"] != SCHEMA:
        raise FileError(f"this version reads saved programs of schema {SCHEMA}, not {excerpt(data['schema'])}")
    shared, body = data["shared"], data["program"]
    if not isinstance(shared, list):
        raise FileError(f"the entry shared of a saved program is a list, not {excerpt(shared)}")
    try:
        if data.get("checksum", _checksum(shared, body)) != _checksum(shared, body):
            raise FileError("the saved program was changed after it was saved: its checksum does not fit")
        reader = _Reader()
        for entry in shared:
            reader.shared.append(reader.value(entry))
        program = reader.value(body)
    except RecursionError:
        raise FileError("the saved program is nested too deeply to be read") from None
    if not isinstance(program, Program):
        raise FileError(f"the entry program holds a {type(program).__name__}, not a Program")
    return program


def save_scheduler(scheduler: TileScheduler) -> dict[str, Any]:
    """A tile scheduler as JSON values; raises SaveError where it could not be loaded again."""
    writer = _Writer()
    return {"shared": writer.shared, "scheduler": writer.value(scheduler, "the kernel")}


def load_scheduler(data: Any) -> TileScheduler:
    """What `save_scheduler` wrote, of a class that exists already. Raises FileError where it is no tile scheduler."""
    reader = _Reader()
    for entry in data["shared"]:
        reader.shared.append(reader.value(entry))
    found = reader.value(data["scheduler"])
    if not isinstance(found, TileScheduler):
        raise FileError(f"the entry scheduler of a kernel holds a {type(found).__name__}, not a tile scheduler")
    return found


def _checksum(shared: Any, body: Any) -> str:
    """Of the values, whatever the text that they were written as."""
    try:
        text = json.dumps([shared, body], sort_keys=True, allow_nan=False)
        return f"{zlib.crc32(text.encode('utf-8')):08x}"
    except (TypeError, ValueError):
        raise FileError("the saved program holds what JSON has no word for") from None


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
        if isinstance(value, DType) and value in VALUES:
            return {"dtype": value.name}
        if isinstance(value, Memory) and value in MEMORIES:
            return {"memory": value.name}
        if isinstance(value, Memory) and value.unwritten():
            raise SaveError(f"{where} holds the memory {value}, which {value.unwritten()}")
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
            if not f.metadata.get("saved", True):
                continue
            written[f.name] = self.value(getattr(value, f.name), f"{where}, {cls.__name__}.{f.name}")
        if not isinstance(value, _SHARED):
            return written
        key = json.dumps(written)
        if key not in self.numbers:
            self.numbers[key] = len(self.shared)
            self.shared.append(written)
        return {"shared": self.numbers[key]}


def _path(cls: type, where: str) -> str:
    """module:name of a class of instructions, statements or tile schedulers, checked to lead back to it."""
    if not issubclass(cls, OPEN):
        raise SaveError(f"{where} holds a {cls.__name__}, which is neither a value of the language nor an Instruction")
    path = _name_of(cls)
    if _at_top(cls) is not cls:
        what = next(word for kind, word in OPEN_WORDS.items() if issubclass(cls, kind))
        raise SaveError(
            f"{where} uses the {what} {cls.__qualname__}, which cannot be imported from {cls.__module__}; "
            "define it at the top of a module"
        )
    return path


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _at_top(cls: type) -> Any:
    """What the name of a class leads to in its module."""
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found


def _named_elsewhere() -> dict[str, type]:
    """Every class of instructions, statements and tile schedulers that exists, by module:name."""
    found: dict[str, type] = {}
    left: list[type] = [*OPEN]
    while left:
        cls = left.pop()
        left += cls.__subclasses__()
        if is_dataclass(cls) and _at_top(cls) is cls:
            found[_name_of(cls)] = cls
    return found


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    """Field -> type. Aliases of the language name classes of other modules; what cannot be resolved may be anything."""
    own = vars(sys.modules[cls.__module__])
    others = {name: found for name, found in {**_NAMED, "Expr": Expr}.items() if name not in own}
    try:
        hints = get_type_hints(cls, localns=others)
    except NameError:
        return dict.fromkeys((f.name for f in fields(cls)), Any)
    return {f.name: hints[f.name] for f in fields(cls)}


class _Reader:
    def __init__(self) -> None:
        self.shared: list[Any] = []
        self.formulas: dict[str, Expr] = {}
        self.elsewhere = _named_elsewhere()

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
            case {"dtype": str(name), **rest} if not rest and name in {t.name for t in VALUES}:
                return dtype(name)
            case {"memory": str(name), **rest} if not rest and name in {m.name for m in MEMORIES}:
                return memory(name)
        raise FileError(f"the saved program holds {json.dumps(data)[:80]}, which is no value of this schema")

    def formula(self, text: str) -> Expr:
        if text not in self.formulas:
            try:
                self.formulas[text] = read(text)
            except FormulaError as error:
                raise FileError(f"the saved program holds an expression that cannot be read: {error}") from None
        return self.formulas[text]

    def object(self, name: str, data: Mapping[str, Any]) -> Any:
        cls = self.elsewhere.get(name) if ":" in name else _NAMED.get(name)
        if cls is None:
            module, colon, path = name.partition(":")
            raise FileError(
                f"the saved program uses {excerpt(path)} of {excerpt(module)}, which is not there: "
                "import what defines it before, if you trust it"
                if colon
                else f"the saved program holds a {excerpt(name)}, which is no value of the language"
            )
        given = {k: self.value(v) for k, v in data.items() if k != "is"}
        known = [f for f in fields(cls) if f.init]
        unknown = sorted(set(given) - {f.name for f in known})
        needed = [f.name for f in known if f.default is MISSING and f.default_factory is MISSING]
        missing = [name for name in needed if name not in given]
        if unknown or missing:
            what = f"has no {unknown[0]}" if unknown else f"lacks its {missing[0]}"
            raise FileError(f"the saved program holds a {cls.__name__} that does not fit this version: it {what}")
        hints = _hints(cls)
        for field, value in given.items():
            if not fits(value, hints[field]):
                raise FileError(
                    f"the saved program holds a {cls.__name__} whose {field} is a {type(value).__name__}, which it "
                    "cannot be"
                )
        try:
            made = cls(**given)
            if isinstance(made, Memory) and made.unwritten():
                raise ValueError(f"{made} {made.unwritten()}")
            return made
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, DeclarationError) as error:
            raise FileError(f"the saved program holds a {cls.__name__} that cannot be: {error}") from None
