"""The kit: one file that travels to the machine with the GPU, with every kernel that the call runs there."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERSION = 2
# What a working tree may weigh is far more, but other things travel too.
MOST_BYTES = 40_000_000
ROLES = ("correct", "matmuls", "streams", "dense", "counted")


class NotAKit(ValueError):
    """A file that is no kit, or one of another version."""


@dataclass(frozen=True, slots=True)
class Job:
    """One bundle, and what for.

    role      a field of `cases.Plan`
    name      of the case
    file      of the bundle, within the kit
    machine   that was asked for
    kernels   in the bundle
    facts     of the case
    counters  of the one kernel of a "counted" job: [{"counter", "value", "metrics", "relation", "note"}]
    """

    role: str
    name: str
    file: str
    machine: str
    kernels: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    counters: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Kit:
    """What a kit says of itself.

    made     date, version and commit
    device   the library's name of the GPU that the kernels were made for
    assembler  whose machine code it carries: "ptxas 13.0.88"
    missing  what should be in it and is not: case and sentence
    """

    made: str
    device: str
    assembler: str
    jobs: tuple[Job, ...]
    missing: tuple[tuple[str, str], ...] = ()

    def of(self, role: str) -> tuple[Job, ...]:
        return tuple(j for j in self.jobs if j.role == role)

    def to_json(self) -> dict[str, Any]:
        return {"gpu_call_kit": VERSION, **asdict(self)}


def write_kit(path: Path, kit: Kit, folder: Path) -> int:
    """Writes a kit of bundles in a folder; its bytes. Raises ValueError where it grows too large to travel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:  # bundles are compressed themselves
            archive.writestr("kit.json", json.dumps(kit.to_json()))
            for job in kit.jobs:
                archive.write(folder / job.file, job.file)
        size = draft.stat().st_size
        if size > MOST_BYTES:
            raise ValueError(f"the kit has {size:,} bytes, and {MOST_BYTES:,} at most travel: ask for fewer kernels")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return size


def open_kit(path: Path, folder: Path) -> Kit:
    """Unpacks a kit into a folder. Raises NotAKit."""
    try:
        with zipfile.ZipFile(path) as archive:
            kit = _kit(json.loads(archive.read("kit.json")), path)
            archive.extractall(folder)
    except OSError as error:
        raise NotAKit(f"{path} cannot be read: {error.strerror or error}; tests/gpu/prepare.py makes it") from None
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError):
        raise NotAKit(f"{path} is no kit; tests/gpu/prepare.py makes one") from None
    return kit


def unpacked_kit(folder: Path) -> Kit:
    """What `open_kit` unpacked."""
    return _kit(json.loads((folder / "kit.json").read_text()), folder)


def _kit(data: Mapping[str, Any], path: Path) -> Kit:
    if data.get("gpu_call_kit") != VERSION:
        raise NotAKit(
            f"{path} is a kit of version {data.get('gpu_call_kit')}, not {VERSION}: make it again with "
            "tests/gpu/prepare.py"
        )
    jobs = tuple(Job(**j) for j in data["jobs"])
    return Kit(data["made"], data["device"], data["assembler"], jobs, tuple((n, s) for n, s in data["missing"]))
