"""JSON straight into dataclasses, every field of the type that it is declared with (msgspec).

What the machine with a GPU reads as well is checked by `tinygpu.files.shape`, which needs no package.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from tinygpu.files.error import FileError, cause, excerpt
from tinygpu.files.json_text import unsealed

_T = TypeVar("_T")
# "Expected `str`, got `int` - at `$.title`"
_MISMATCH = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<found>[^`]*)`(?: - at `(?P<place>.*)`)?", re.S)
_PLACED = re.compile(r"(?P<what>.*) - at `(?P<place>.*)`", re.S)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`(?: - at `(?P<place>.*)`)?", re.S)
_WORDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "null",
          "object": "an object", "array": "a list", "dict": "an object", "list": "a list"}  # fmt: skip


def decoded_as(kind: type[_T], data: bytes, where: str, beside: tuple[str, ...] | None = ()) -> _T:
    """The value of a JSON text, sealed or not, as `kind`. Raises FileError, with the place of the first misfit.

    beside  members that the object may have and the dataclass has not; None: any
    """
    import msgspec

    text = unsealed(data, where)
    try:
        if dataclasses.is_dataclass(kind) and beside is not None:
            _check_members(kind, msgspec.json.decode(text, type=dict[str, msgspec.Raw]), beside, where)
        found: _T = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise FileError(f"{where} is damaged, or of another version: {_sentence(cause(error))}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{where} is not JSON: {cause(error).removeprefix('JSON is malformed: ')}") from None
    except RecursionError:
        raise FileError(f"{where} is nested too deeply to be read") from None
    return found


def converted(kind: type[_T], value: Any, where: str, beside: tuple[str, ...] = ()) -> _T:
    """A parsed JSON value as `kind`, as `decoded_as` does it. Raises FileError."""
    import msgspec

    try:
        if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
            _check_members(kind, value, beside, where)
        found: _T = msgspec.convert(value, type=kind)
    except msgspec.ValidationError as error:
        raise FileError(f"{where} is damaged, or of another version: {_sentence(cause(error))}") from None
    except RecursionError:
        raise FileError(f"{where} is nested too deeply to be read") from None
    return found


def versions(data: bytes, keys: tuple[str, ...], raw: bool = False) -> dict[str, Any]:
    """Those of the members that a JSON object has, by name; {} for what is no object, or no JSON at all.

    What a file is and of which version is looked at before the rest is taken to be of that version.

    raw  gives the text of each, and not its value
    """
    import msgspec

    try:
        # all others are passed over, and take neither time nor memory
        fields = [(key, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for key in keys]
        found = msgspec.json.decode(data, type=msgspec.defstruct("Members", fields))
        there = {key: getattr(found, key) for key in keys if getattr(found, key) is not msgspec.UNSET}
        return there if raw else {key: msgspec.json.decode(text) for key, text in there.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _check_members(kind: Any, found: Mapping[str, Any], beside: tuple[str, ...], where: str) -> None:
    """An unknown member may be a damaged one, or a damaged checksum."""
    known = {*beside, *(f.name for f in dataclasses.fields(kind))}
    for name in found:
        if name not in known:
            raise FileError(f"{where} is damaged, or of another version: it has the unknown member {excerpt(name)}")


def _sentence(text: str) -> str:
    if found := _MISMATCH.fullmatch(text):
        wanted = " or ".join(_WORDS.get(w, w) for w in found["wanted"].split(" | "))
        return f"{_place(found['place'])} is {_WORDS.get(found['found'], found['found'])}, and must be {wanted}"
    if found := _MISSING.fullmatch(text):
        return f"{_place(found['place'])} lacks {found['name']}"
    if found := _PLACED.fullmatch(text):
        return f"{found['what'].replace('`', '')}, in {_place(found['place'])}"
    return text.replace("`", "")


def _place(path: str | None) -> str:
    """ "$.searched[...].steps" as "searched[...].steps"; the whole value where there is no path."""
    return (path or "$").removeprefix("$").lstrip(".") or "it"
