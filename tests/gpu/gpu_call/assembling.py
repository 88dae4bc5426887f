"""Whose machine code a kit carries: that of a ptxas that the drivers take which it travels to, kept between kits."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tinygpu.api.bundle import Assembling, one_by_one
from tinygpu.ptx.assembling.assembler import AssemblerError, Assembly
from tinygpu.ptx.assembling.ptxas import WHEEL, find_ptxas

# The oldest driver that a kit must load on, as a version of CUDA.
OLDEST = "13.0"


@dataclass(frozen=True, slots=True)
class Assembler:
    """What assembles the kernels of a kit.

    name  with its version, for the record
    many  assembles texts for a target
    """

    name: str
    many: Assembling


# In this process, for a rehearsal: kernels with register budgets get no machine code of it.
NVJITLINK = Assembler("nvJitLink", one_by_one)


def assembler_for(cuda: str, ptxas: Path | None, folder: Path) -> Assembler:
    """The ptxas at a path, or that of the wheel, where drivers of a CUDA version take its machine code.

    folder  keeps what it assembled

    Raises AssemblerUnavailable where there is none, and ValueError where it is of another version.
    """
    version = re.fullmatch(r"(\d+)\.(\d+)", cuda)
    if version is None:
        raise ValueError(f"a version of CUDA is written like {OLDEST}, not {cuda!r}")
    found = find_ptxas(ptxas)
    if not found.loads_on((int(version[1]), int(version[2]))):
        raise ValueError(
            f"drivers of CUDA {cuda} need not take machine code of {found}: pip install '{WHEEL}=={cuda}.*'"
        )
    return Assembler(str(found), Kept(found.assemble_many, str(found), folder).many)


class Kept:
    """Assembles what was not assembled before: one text serves many problems, and kits for many GPUs.

    name    of the assembler, with its version
    folder  of files, one for each text
    """

    def __init__(self, many: Assembling, name: str, folder: Path) -> None:
        self._many, self._name, self._folder = many, name, folder

    def many(self, texts: Sequence[str], target: str) -> list[Assembly | AssemblerError]:
        """An assembly, or a refusal, for each text."""
        files = [self._file(ptx, target) for ptx in texts]
        found = {file: self._read(file) for file in files}
        new = {file: ptx for file, ptx in zip(files, texts, strict=True) if found[file] is None}
        for file, assembly in zip(new, self._many(list(new.values()), target), strict=True):
            found[file] = assembly
            if isinstance(assembly, Assembly):  # a refusal is found out again
                self._write(file, assembly)
        done = [found[file] for file in files]
        return [assembly for assembly in done if assembly is not None]

    def _file(self, ptx: str, target: str) -> Path:
        key = hashlib.sha256("\0".join((self._name, target, ptx)).encode()).hexdigest()
        return self._folder / f"{key}.json"

    def _read(self, file: Path) -> Assembly | AssemblerError | None:
        try:
            return Assembly.from_json(json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError, KeyError):  # not there, or not whole
            return None

    def _write(self, file: Path, assembly: Assembly) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        draft.write_text(json.dumps(assembly.to_json()))
        os.replace(draft, file)
