"""The library of devices that ships, and look-up by name, alias or file."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

from tinygpu.devices.device import DEVICE_BYTES, Device, device_from_json
from tinygpu.files.json_text import parse
from tinygpu.files.reading import read_file


@cache
def devices() -> tuple[Device, ...]:
    """Every device that ships, in the order of their compute capability, then name."""
    found = []
    for entry in files("tinygpu.devices").iterdir():
        if entry.name.endswith(".json"):
            found.append(device_from_json(json.loads(entry.read_text(encoding="utf-8")), entry.name))
    return tuple(sorted(found, key=lambda d: (d.cc, d.name)))


def device(name: str | Path | Device) -> Device:
    """The device of that name or alias, in any case and with or without dashes; or of a device file.

    name  "a100", "RTX 4090", "h100-pcie"; or a path that ends in .json

    >>> device("RTX 4090").sm_count
    128
    """
    if isinstance(name, Device):
        return name
    if isinstance(name, Path) or str(name).endswith(".json"):
        return load_device(name)
    key = _key(name)
    for candidate in devices():
        if key in (_key(candidate.name), *map(_key, candidate.aliases)):
            return candidate
    raise ValueError(_unknown(name))


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
    hint = f"closest: {', '.join(near)}; " if near else ""
    return (
        f"unknown device {name!r}; {hint}known: {', '.join(d.name for d in devices())}; "
        "or give the path of a device file that ends in .json"
    )
