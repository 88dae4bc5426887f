"""A bundle: kernels for one problem in one file, with all that timing them elsewhere needs.

A zip file. `bundle.json` holds the question (tensors, scalars, the reference as a graph, how exact results are) in
every memory layout that a kernel wants it in, and per kernel its launch; beside it lie each kernel's PTX and cubin.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tinygpu.distributions import Distribution
from tinygpu.files import FileError
from tinygpu.files.archive import Archive
from tinygpu.files.error import excerpt
from tinygpu.files.json_text import dumped, parse
from tinygpu.files.reading import read_file
from tinygpu.files.shape import built
from tinygpu.files.writing import check_replaceable, draft_of
from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.measuring.reference import Graph
from tinygpu.ptx.runtime.elements import element
from tinygpu.ptx.runtime.launch import Launch, Tensor

KEY = "tinygpu_bundle"
# 2: machine code has the register budgets of its PTX, so that it is loaded wherever it is there.
# 3: tensor maps have a swizzle_bytes.
# 4: questions have the values that inputs are drawn from.
# 5: a launch may have others behind it, whose texts are numbered.
VERSION = 5
BEGINS = (b"PK\x03\x04",)
_INDEX = "bundle.json"
# Bytes of a bundle, of all that it holds, decompressed, and of one kernel: 500 take some 20 MB and 200 MB.
_MOST_BYTES, _MOST_HELD, _MOST_MEMBER = 2**27, 2**30, 2**25


@dataclass(frozen=True, slots=True)
class Question:
    """A problem, as the worker needs it.

    name       in words
    problem    the problem as JSON, for whoever reads the results
    tensors    operands with their memory layout
    scalars    (name, type) of numbers given at launch
    reference  the right answer, as a graph
    rounding   how far a result may be off
    values     what inputs are drawn from, of tensors and scalars for which the machine says it
    """

    name: str
    problem: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    scalars: tuple[tuple[str, str], ...]
    reference: Graph
    rounding: Rounding
    values: Mapping[str, Distribution] = field(default_factory=dict)

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "reference": self.reference.to_json()}

    def __post_init__(self) -> None:
        names = [t.name for t in self.tensors] + [name for name, _ in self.scalars]
        if len({*names}) != len(names) or not all(map(_is_name, names)):
            raise ValueError(f"tensors and scalars have names of their own, of letters, digits, _ and -, not {names}")
        for _, kind in self.scalars:
            element(kind)
        unknown = sorted(self.reference.inputs() - {*names})
        if unknown:
            raise ValueError(f"the reference uses {unknown[0]}, which is no tensor or scalar")
        strange = sorted({*self.values} - {*names})
        if strange:
            raise ValueError(f"there are values for {excerpt(strange[0])}, which is no tensor or scalar")
        for t in self.tensors:
            if t.access != "in" and t.name not in self.reference.outputs:
                raise ValueError(f"the reference gives no {t.name}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel.

    name               unique in its bundle
    question           number of the question that it answers
    machine, point     the candidate
    predicted_seconds  by the model
    registers          per thread (of several kernels the most), and `spill_bytes`, as the assembler says
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

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise ValueError(f"the name of a kernel is of letters, digits, _ and -, not {excerpt(self.name)}")


@dataclass(frozen=True, slots=True)
class _Index:
    """bundle.json, as it is written."""

    tinygpu_bundle: int
    title: str
    device: str
    made: str
    questions: tuple[Question, ...]
    kernels: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if len({e.name for e in self.kernels}) != len(self.kernels):
            raise ValueError("two kernels have one name")
        for e in self.kernels:
            if not 0 <= e.question < len(self.questions):
                raise ValueError(f"{e.name} answers question {e.question} of {len(self.questions)}")
            of = self.questions[e.question]
            if e.launch.tensors != of.tensors:
                raise ValueError(f"{e.name} is not launched on the tensors of its question")
            launches = (e.launch, *e.launch.then)
            scalars = {a.name for launch in launches for a in launch.arguments if a.kind == "scalar"}
            if scalars - {name for name, _ in of.scalars}:
                raise ValueError(f"{e.name} takes the scalar {sorted(scalars)[0]}, which its question does not give")


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
        """Its PTX."""
        return self._archive().read(f"kernels/{entry.name}.ptx")

    def cubin(self, entry: Entry) -> bytes | None:
        """The machine code for the device that the bundle was made for; None where there is PTX alone."""
        return self._archive().read(f"kernels/{entry.name}.cubin") if entry.cubin else None

    def texts(self, entry: Entry) -> tuple[tuple[bytes, bytes | None], ...]:
        """PTX and machine code of every launch of an entry, in their order."""
        archive = self._archive()
        return tuple(
            (archive.read(f"kernels/{name}.ptx"), archive.read(f"kernels/{name}.cubin") if entry.cubin else None)
            for name in _members(entry)
        )

    def _archive(self) -> Archive:
        return _archive(self.path, read_file(self.path, _MOST_BYTES))


def ptx_digest(*texts: bytes) -> str:
    """SHA-256 of a kernel's PTX, or of those of several, one after another."""
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _members(entry: Entry) -> list[str]:
    """What the texts of an entry are called in the archive."""
    return [entry.name, *(f"{entry.name}-{number}" for number in range(2, len(entry.launch.then) + 2))]


def write_bundle(
    path: Path,
    *,
    title: str,
    device: str,
    made: str,
    questions: Iterable[Question],
    kernels: Iterable[tuple[Entry, Sequence[tuple[bytes, bytes | None]]]],
) -> Bundle:
    """Writes a bundle of entries with PTX and cubin of each launch; the file is there whole or not at all."""
    entries = []
    check_replaceable(path, BEGINS, "a bundle")
    with draft_of(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, texts in kernels:
            entries.append(asdict(entry))
            for name, (ptx, cubin) in zip(_members(entry), texts, strict=True):
                archive.writestr(f"kernels/{name}.ptx", ptx)
                if cubin is not None:
                    archive.writestr(f"kernels/{name}.cubin", cubin)
        index = {
            KEY: VERSION,
            "title": title,
            "device": device,
            "made": made,
            "questions": [q.to_json() for q in questions],
            "kernels": entries,
        }
        archive.writestr(_INDEX, dumped(index))
    return read_bundle(path)


def read_bundle(path: Path) -> Bundle:
    """Opens a bundle. Raises FileError."""
    data = read_file(path, _MOST_BYTES)
    archive = _archive(path, data)
    if _INDEX not in archive.names:
        raise FileError(f"{path} is no bundle; `tinygpu bundle` writes one")
    found = parse(archive.read(_INDEX), f"{path}, {_INDEX}")
    version = found.get(KEY) if isinstance(found, dict) else None
    if version != VERSION:
        raise FileError(
            f"{path} is a bundle of version {excerpt(version)}, and this worker takes version {VERSION}; "
            "use the same version of tinygpu on both machines"
        )
    index = built(_Index, found, f"{path}, {_INDEX}")
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(path, index.title, index.device, index.made, digest, index.questions, index.kernels)


def _archive(path: Path, data: bytes) -> Archive:
    return Archive(data, str(path), _MOST_HELD, _MOST_MEMBER)


def _is_name(text: str) -> bool:
    """A name that is nothing but a name: of a file as it stands in an archive, of a parameter."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", text) is not None
