"""A bundle: kernels for one problem in one file, with all that timing them elsewhere needs.

A zip file. `bundle.json` holds the question (tensors, scalars, the reference as a graph, how exact results are) in
every memory layout that a kernel wants it in, and per kernel its launch; beside it lie each kernel's PTX and cubin.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.measuring.reference import Graph
from tinygpu.ptx.runtime.launch import Launch, Tensor

# 2: machine code has the register budgets of its PTX, so that it is loaded wherever it is there.
VERSION = 2


class NotABundle(ValueError):
    """A file that is no bundle, or one of another version."""


@dataclass(frozen=True, slots=True)
class Question:
    """A problem, as the worker needs it.

    name       in words
    problem    the problem as JSON, for whoever reads the results
    tensors    operands with their memory layout
    scalars    (name, type) of numbers given at launch
    reference  the right answer, as a graph
    rounding   how far a result may be off
    """

    name: str
    problem: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    scalars: tuple[tuple[str, str], ...]
    reference: Graph
    rounding: Rounding

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "reference": self.reference.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Question:
        tensors = tuple(
            Tensor(**{**t, "shape": tuple(t["shape"]), "strides": tuple(t["strides"])}) for t in data["tensors"]
        )
        return Question(
            data["name"],
            data["problem"],
            tensors,
            tuple((n, t) for n, t in data["scalars"]),
            Graph.from_json(data["reference"]),
            Rounding(**data["rounding"]),
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel.

    name               unique in its bundle
    question           number of the question that it answers
    machine, point     the candidate
    predicted_seconds  by the model
    registers          per thread, and `spill_bytes`, as the assembler says
    digest             SHA-256 of its PTX
    """

    name: str
    question: int
    machine: str
    point: Mapping[str, int | str]
    launch: Launch
    predicted_seconds: float
    registers: int
    spill_bytes: int
    digest: str
    cubin: bool

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Entry:
        return Entry(**{**data, "launch": Launch.from_json(data["launch"])})


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle.

    title    what was asked, in words
    device   the library's name of the GPU that the kernels were made for
    made     when and by what: "2026-03-01, tinygpu 0.1.0"
    digest   SHA-256 of the file
    """

    path: Path
    title: str
    device: str
    made: str
    digest: str
    questions: tuple[Question, ...]
    entries: tuple[Entry, ...]

    def ptx(self, entry: Entry) -> bytes:
        return self._file(f"kernels/{entry.name}.ptx")

    def cubin(self, entry: Entry) -> bytes | None:
        """The machine code for the device that the bundle was made for; None where there is PTX alone."""
        return self._file(f"kernels/{entry.name}.cubin") if entry.cubin else None

    def _file(self, name: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)


def ptx_digest(ptx: bytes) -> str:
    return hashlib.sha256(ptx).hexdigest()


def write_bundle(
    path: Path,
    *,
    title: str,
    device: str,
    made: str,
    questions: Iterable[Question],
    kernels: Iterable[tuple[Entry, bytes, bytes | None]],
) -> Bundle:
    """Writes a bundle of (entry, PTX, cubin); the file is there whole or not at all."""
    entries = []
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, ptx, cubin in kernels:
                entries.append(asdict(entry))
                archive.writestr(f"kernels/{entry.name}.ptx", ptx)
                if cubin is not None:
                    archive.writestr(f"kernels/{entry.name}.cubin", cubin)
            index = {
                "tinygpu_bundle": VERSION,
                "title": title,
                "device": device,
                "made": made,
                "questions": [q.to_json() for q in questions],
                "kernels": entries,
            }
            archive.writestr("bundle.json", json.dumps(index))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return read_bundle(path)


def read_bundle(path: Path) -> Bundle:
    """Opens a bundle. Raises NotABundle."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with zipfile.ZipFile(path) as archive:
            index = json.loads(archive.read("bundle.json"))
    except OSError as error:
        raise NotABundle(f"{path} cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, KeyError, ValueError):
        raise NotABundle(f"{path} is no bundle; `tinygpu bundle` writes one") from None
    if index.get("tinygpu_bundle") != VERSION:
        raise NotABundle(
            f"{path} is a bundle of version {index.get('tinygpu_bundle')}, and this worker takes version {VERSION}; "
            "use the same version of tinygpu on both machines"
        )
    return Bundle(
        path,
        index["title"],
        index["device"],
        index["made"],
        digest,
        tuple(Question.from_json(q) for q in index["questions"]),
        tuple(Entry.from_json(e) for e in index["kernels"]),
    )
