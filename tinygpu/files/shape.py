"""Parsed JSON into dataclasses, and values against type hints, with nothing but the standard library.

The machine with a GPU has NumPy and the driver's bindings, and may have no other package: bundles, results files and
device profiles are read there too.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from tinygpu.files.error import FileError, excerpt

_T = TypeVar("_T")
_WORDS: Mapping[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null",
}  # fmt: skip


def built(kind: type[_T], data: Any, where: str) -> _T:
    """A dataclass, or another type, from parsed JSON: objects for dataclasses and mappings, lists for tuples.

    Every field has the type that it is declared with, none is unknown, and none without a default is missing. Raises
    FileError, with the place of the first misfit.
    """
    found: _T = _built(kind, data, where, "")
    return found


def picked(kind: type[_T], data: Any, where: str) -> _T:
    """As `built`, of an object that may have more members than the dataclass has fields, which are not looked at."""
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name in hints_of(cast(Any, kind))}
    return built(kind, data, where)


def _built(kind: Any, data: Any, where: str, place: str) -> Any:
    if kind is Any:
        return data
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _object(kind, data, where, place)
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        plain = [k for k in inside if k in _WORDS]
        if any(_is(k, data) for k in plain):
            return float(data) if _is_number(data) and int not in plain else data
        rest = [k for k in inside if k not in _WORDS]
        if len(rest) == 1:
            return _built(rest[0], data, where, place)
        raise _misfit(where, place, data, " or ".join(_WORDS[k] for k in plain))
    if origin is typing.Literal:
        if data in inside and any(type(data) is type(i) for i in inside):
            return data
        raise _misfit(where, place, data, ", ".join(map(repr, inside[:-1])) + f" or {inside[-1]!r}")
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise _misfit(where, place, data, "a list")
        if len(inside) == 2 and inside[1] is Ellipsis:
            return tuple(_built(inside[0], item, where, f"{place}[{n}]") for n, item in enumerate(data))
        if len(data) != len(inside):
            raise _misfit(where, place, data, f"a list of {len(inside)}")
        pairs = enumerate(zip(inside, data, strict=True))
        return tuple(_built(k, item, where, f"{place}[{n}]") for n, (k, item) in pairs)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise _misfit(where, place, data, "an object")
        return {name: _built(inside[1], item, where, f"{place}.{name}") for name, item in data.items()}
    if not _is(kind, data):
        raise _misfit(where, place, data, _WORDS.get(kind, getattr(kind, "__name__", str(kind))))
    return float(data) if kind is float else data


def _object(kind: Any, data: Any, where: str, place: str) -> Any:
    if not isinstance(data, dict):
        raise _misfit(where, place, data, "an object")
    fields, hints = dataclasses.fields(kind), hints_of(kind)
    inside = place or "it"
    for name in data:
        if name not in hints:
            raise FileError(f"{where}: {inside} has no member {excerpt(name)} in this version")
    for f in fields:
        if f.name not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise FileError(f"{where}: {inside} lacks {f.name}")
    given = {n: _built(hints[n], value, where, f"{place}.{n}" if place else n) for n, value in data.items()}
    try:
        return kind(**given)
    except FileError:
        raise
    except (TypeError, ValueError) as error:
        raise FileError(f"{where}: {place + ': ' if place else ''}{error}") from None


@cache
def hints_of(kind: type) -> Mapping[str, Any]:
    """Field -> type of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what a type hint of a dataclass says: classes, unions, literals, tuples and mappings.

    What a type says of itself further inside (a tree of trees) is left to the class.
    """
    if hint is Any or isinstance(hint, typing.ForwardRef):
        return True
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, k) for k in inside)
    if origin is typing.Literal:
        return any(value == i and type(value) is type(i) for i in inside)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(inside) == 2 and inside[1] is Ellipsis:
            return all(fits(item, inside[0]) for item in value)
        return len(value) == len(inside) and all(fits(v, k) for v, k in zip(value, inside, strict=True))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(fits(k, inside[0]) and fits(v, inside[1]) for k, v in value.items())
    if hint is float:
        return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is None:
        return value is None
    return isinstance(hint, type) and isinstance(value, hint)


def _is(kind: Any, data: Any) -> bool:
    if kind is float:
        return _is_number(data)
    if kind is int:
        return isinstance(data, int) and not isinstance(data, bool)
    return isinstance(kind, type) and isinstance(data, kind)


def _is_number(data: Any) -> bool:
    return isinstance(data, int | float) and not isinstance(data, bool) and math.isfinite(data)


def _misfit(where: str, place: str, data: Any, wanted: str) -> FileError:
    return FileError(f"{where}: {place or 'it'} must be {wanted}, not {excerpt(data)}")
