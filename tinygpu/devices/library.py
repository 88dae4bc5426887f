"""The library of devices that ships, and look-up by name, alias or file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tinygpu.devices.device import DEVICE_BYTES, Device, device_from_json
from tinygpu.extensions import Extension, extension, extensions, without_ours
from tinygpu.files.json_text import parse
from tinygpu.files.reading import read_file


@cache
def devices() -> tuple[Device, ...]:
    """Every device that ships, in the order of their compute capability, then name."""
    return tuple(sorted(map(_shipped, _written()), key=lambda d: (d.cc, d.name)))


@cache
def _written() -> Mapping[str, dict[str, Any]]:
    """The files of the library, by their names: figures are looked at when their device is asked for."""
    entries = [entry for entry in files("tinygpu.devices").iterdir() if entry.name.endswith(".json")]
    return {entry.name: json.loads(entry.read_text(encoding="utf-8")) for entry in entries}


@cache
def _shipped(file: str) -> Device:
    return device_from_json(_written()[file], file)


def device(name: str | Path | Device) -> Device:
    """The device of that name or alias, in any case and with or without dashes; or of a device file.

    name  "a100", "RTX 4090", "h100-pcie"; one that an installed package offers; or a path that ends in .json

    Raises ValueError for a name that is nobody's, and ExtensionError for a package's that cannot be used.

    >>> device("RTX 4090").sm_count
    128
    """
    if isinstance(name, Device):
        return name
    if isinstance(name, Path) or str(name).endswith(".json"):
        return load_device(name)
    key = _key(without_ours(name))
    ours = [file for file, found in _written().items() if key in map(_key, (found["name"], *found["aliases"]))]
    offered = extension("devices", name, [name] if ours else [])
    if offered is not None:
        return _offered(offered)
    if ours:
        return _shipped(ours[0])
    raise ValueError(_unknown(name))


def _offered(offered: Extension) -> Device:
    """A package offers a Device, or the path of a device file."""
    found = offered.imported()
    if isinstance(found, (str, Path)):
        return load_device(found)
    if not isinstance(found, Device):
        raise offered.wrong(found, "a Device, and no path of a device file")
    return found


def load_device(path: str | Path) -> Device:
    """The device of a user's own file (schema "tinygpu-device/1", docs/devices.md). Raises FileError."""
    return device_from_json(parse(read_file(path, DEVICE_BYTES), f"[{path}]"), str(path))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _key(name: str) -> str:
    return re.sub(r"^(nvidia)?(geforce|tesla|quadro)?(rtx(?=\d)|gtx(?=\d))?", "", _plain(name))


def _unknown(name: str) -> str:
    keys = {_plain(alias): candidate.name for candidate in devices() for alias in (candidate.name, *candidate.aliases)}
    near = list(dict.fromkeys(keys[k] for k in get_close_matches(_plain(name), keys, 4)))
    offered = [e.name for e in extensions("devices")]
    hint = f"closest: {', '.join(near)}; " if near else ""
    return (
        f"unknown device {name!r}; {hint}known: {', '.join([*(d.name for d in devices()), *offered])}; "
        "or give the path of a device file that ends in .json"
    )
