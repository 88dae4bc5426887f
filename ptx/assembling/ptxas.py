"""Assembling with ptxas, NVIDIA's assembler as a program of its own (wheel nvidia-cuda-nvcc, or a CUDA toolkit).

It compiles a kernel as a whole program, as the driver does, so that register budgets hold (see
`Assembly.heeds_budgets`); and where the assembler in this process is of one version, there can be a ptxas of every
version: machine code of a later one than a driver's may not load there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from os import cpu_count
from pathlib import Path

from tinygpu.ptx.assembling.assembler import (
    AssemblerError,
    AssemblerUnavailable,
    Assembly,
    Fault,
    entry_names,
    faults_in,
    figure_in,
    warnings_in,
)

WHEEL = "nvidia-cuda-nvcc"
_SECONDS = 120.0
_VERSION = re.compile(r"\bV(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Ptxas:
    """One ptxas.

    path     of the program
    version  (major, minor, patch) of the CUDA toolkit that it belongs to: (13, 0, 88)
    """

    path: Path
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"ptxas {'.'.join(map(str, self.version))}"

    def loads_on(self, cuda: tuple[int, int]) -> bool:
        """Whether drivers of a CUDA version take its machine code: one of the same major version, and no older."""
        return self.version[0] == cuda[0] and self.version[:2] <= cuda

    def assemble(self, ptx: str, target: str) -> Assembly:
        """The machine code of the one kernel in `ptx`. Raises AssemblerError where it is refused."""
        kernels = entry_names(ptx)
        if len(kernels) != 1:
            found = f"the PTX holds {len(kernels)} kernels, and one is assembled at a time"
            raise AssemblerError(target, (Fault(found),))
        with tempfile.TemporaryDirectory(prefix="tinygpu-ptxas-") as folder:
            source, out = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
            source.write_text(ptx, encoding="utf-8")
            command = [str(self.path), f"-arch={target}", "-v", str(source), "-o", str(out)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                raise AssemblerError(target, (Fault(f"{self} did not end within {_SECONDS:g} s"),)) from None
            log = (done.stderr + done.stdout).replace(str(source), "kernel.ptx")
            if done.returncode or not out.exists():
                raise AssemblerError(target, faults_in(ptx, target, log, f"code {done.returncode}"), log)
            return _assembly(out.read_bytes(), target, kernels[0], log)

    def assemble_many(self, texts: Sequence[str], target: str) -> list[Assembly | AssemblerError]:
        """What `assemble` gives for each, as many at a time as there are cores; a refusal takes an assembly's place."""

        def one(ptx: str) -> Assembly | AssemblerError:
            try:
                return self.assemble(ptx, target)
            except AssemblerError as refused:
                return refused

        with ThreadPoolExecutor(cpu_count() or 1) as pool:
            return list(pool.map(one, texts))


def find_ptxas(path: Path | None = None) -> Ptxas:
    """The ptxas at a path; else that of the wheel nvidia-cuda-nvcc, else the one that the shell would find.

    Raises AssemblerUnavailable where there is none, or what is there does not say its version.
    """
    found = path or _of_wheel() or shutil.which("ptxas")
    if found is None:
        raise AssemblerUnavailable(f"there is no ptxas here: pip install {WHEEL}, or give that of a CUDA toolkit")
    try:
        said = subprocess.run([str(found), "--version"], capture_output=True, text=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AssemblerUnavailable(f"{found} cannot be run: {error}") from None
    version = _VERSION.search(said)
    if version is None:
        raise AssemblerUnavailable(f"{found} is no ptxas: asked for its version, it says {said.strip()[:80]!r}")
    return Ptxas(Path(found), (int(version[1]), int(version[2]), int(version[3])))


def _of_wheel() -> Path | None:
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())) for f in files if f.name == "ptxas"), None)


def _assembly(cubin: bytes, target: str, kernel: str, log: str) -> Assembly:
    """What the log of `-v` says: one line of spills for every function, one of registers for the kernel."""
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    used = re.search(rf"Compiling entry function '{re.escape(kernel)}'.*?^(ptxas info *: Used .*?)$", log, re.S | re.M)
    if not spills or used is None:
        raise RuntimeError(f"the log of ptxas does not give the figures of {kernel!r}: {log!r}")
    return Assembly(
        cubin=cubin,
        target=target,
        registers=figure_in(r"Used (\d+) registers", used[1]),
        spill_store_bytes=sum(int(stored) for _, stored, _ in spills),
        spill_load_bytes=sum(int(loaded) for _, _, loaded in spills),
        stack_bytes=sum(int(stack) for stack, _, _ in spills),
        static_smem_bytes=figure_in(r"(\d+) bytes smem", used[1]),
        barriers=figure_in(r"used (\d+) barriers", used[1]),
        warnings=warnings_in(log),
        log=log,
    )
