"""Run a kernel from PTX files in the emulator, with arguments as they are typed, and compare what it leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.api.arguments import ArgumentError, Arguments, load_array, read_arguments
from tinygpu.devices import Device
from tinygpu.devices import device as find_device
from tinygpu.files import FileError
from tinygpu.files.reading import decoded, read_file
from tinygpu.ptx.emulator import Caches, EmulationFault, Fault, Order, Report, emulate
from tinygpu.ptx.emulator.source.parser import parse
from tinygpu.ptx.emulator.source.syntax import Function
from tinygpu.seeds import check_seed

# Bytes of a PTX file; those of the largest libraries have some 20 MB. A cubin has zeros near its beginning.
_PTX_BYTES, _LOOKED_AT = 2**27, 4096
Check = Literal["raise", "collect", "off"]
# Relative error that a result may have by default: some units in the last place, for results of many additions.
_TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 2e-2}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One array beside what it should hold.

    wrong       elements that differ by more than the tolerance, of `elements`
    first       index of the first of them
    found, wanted  the values there
    max_error   largest absolute difference
    """

    name: str
    elements: int
    wrong: int
    first: tuple[int, ...] | None
    found: float | None
    wanted: float | None
    max_error: float
    rtol: float
    atol: float

    @property
    def ok(self) -> bool:
        return self.wrong == 0

    def __str__(self) -> str:
        bound = f"within {self.rtol:g} of the value plus {self.atol:g}" if self.rtol or self.atol else "exactly"
        if self.ok:
            return f"{self.name}: all {self.elements:,} elements agree {bound}, max error {self.max_error:g}"
        return (
            f"{self.name}: {self.wrong:,} of {self.elements:,} elements do not agree {bound}; the first is "
            f"{list(self.first or ())} with {self.found:g}, where {self.wanted:g} is wanted"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Emulated:
    """What one run gave.

    report     None where the first fault ended the run (check="raise")
    faults     of the report, or the one that ended the run
    arguments  whose arrays hold what the kernel left
    seconds    wall time of the emulation
    """

    kernel: str
    report: Report | None
    faults: tuple[Fault, ...]
    arguments: Arguments
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As data; the report's, where there is one."""
        if self.report is not None:
            return self.report.to_dict()
        return {"kernel": self.kernel, "ok": False, "faults": [asdict(fault) for fault in self.faults]}


def emulate_files(
    files: Sequence[Path],
    *,
    arguments: Sequence[str],
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int] = (1, 1, 1),
    entry: str | None = None,
    dynamic_smem: int = 0,
    check: Check = "collect",
    order: Order = "late",
    seed: int = 0,
    ctas: str = "",
    results: Sequence[str] = (),
    device: str = "",
    ctas_per_sm: int = 1,
) -> Emulated:
    """Runs one kernel of a PTX file.

    arguments  as typed (see tinygpu.api.arguments)
    check      "raise" ends the run at the first fault
    ctas       which CTAs to run: first, last and numbers, separated by commas; all where empty
    results    names of the arrays that will be looked at afterwards: refused before the run where there is no such one
    device     a GPU that is known: with its caches, report.traffic says what moves between L1, L2 and DRAM,
               where `ctas_per_sm` CTAs are resident on one of its SMs

    Raises ArgumentError, and what `emulate` raises for PTX and launches that it cannot run.
    """
    if len(files) != 1:
        raise ArgumentError(f"one PTX file at a time can be run, not {len(files)}: link them into one module first")
    text = _text(files[0])
    function = _entry(text, entry)
    check_seed(seed)
    given = read_arguments(function, arguments, seed)
    for name in results:
        given.array(name)
    begun = time.perf_counter()
    modes: Mapping[Check, Any] = {"raise": True, "collect": "collect", "off": False}
    try:
        report = emulate(
            text,
            entry=function.name,
            grid=grid,
            block=block,
            cluster=cluster,
            args=given.values,
            dynamic_smem=dynamic_smem,
            seed=seed,
            check=modes[check],
            order=order,
            ctas=_ctas(ctas, int(np.prod([int(n) for n in grid]))),
            caches=caches_of(find_device(device), dynamic_smem, ctas_per_sm) if device else None,
        )
    except EmulationFault as error:
        return Emulated(function.name, None, (error.fault,), given, time.perf_counter() - begun)
    return Emulated(function.name, report, report.faults, given, time.perf_counter() - begun)


def caches_of(device: Device, smem_bytes: int, ctas_per_sm: int = 1) -> Caches:
    """The caches of a device for a kernel: L1 is what the shared memory of the resident CTAs leaves.

    smem_bytes  shared memory of one CTA
    """
    taken = ctas_per_sm * (smem_bytes + device.reserved_smem_bytes_per_block)
    l1_bytes = max(0, int(device.number("l1_smem_unified_kb") * 1024) - taken)
    return Caches(l1_bytes // 128 * 128, device.l2_bytes, device.sm_count, ctas_per_sm)


def compare(
    name: str, found: NDArray[Any], path: Path, rtol: float | None = None, atol: float | None = None
) -> Comparison:
    """An array beside the one in a .npy file: |found - wanted| <= atol + rtol * |wanted|; NaN equals NaN.

    Without rtol the tolerance is that of the array's type; integers are compared exactly.
    """
    wanted = load_array(path)
    if wanted.dtype != found.dtype and wanted.dtype.kind == "V" and wanted.dtype.itemsize == found.dtype.itemsize:
        # NumPy files do not know the types of ml_dtypes; they keep their bytes.
        wanted = wanted.view(found.dtype)
    if wanted.shape != found.shape:
        raise ArgumentError(f"{name} has shape {list(found.shape)}, but {path} has {list(wanted.shape)}")
    relative = _TOLERANCES.get(found.dtype.name, 0.0) if rtol is None else rtol
    absolute = relative if atol is None and rtol is None else atol or 0.0
    x, y = found.astype(np.float64), wanted.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(x - y))
        near = np.isfinite(y) & (error <= absolute + relative * np.abs(y))
    bad = ~(same | near)
    wrong = int(np.count_nonzero(bad))
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
    if not wrong:
        return Comparison(name, found.size, 0, None, None, None, worst, relative, absolute)
    at = int(np.argmax(bad.reshape(-1)))
    first = tuple(int(i) for i in np.unravel_index(at, found.shape))
    return Comparison(name, found.size, wrong, first, float(x[first]), float(y[first]), worst, relative, absolute)


def _text(path: Path) -> str:
    data = read_file(path, _PTX_BYTES)
    if b"\0" in data[:_LOOKED_AT]:
        raise FileError(f"{path} is no text, so it is no PTX: a cubin is not, its PTX is")
    return decoded(data, str(path))


def _entry(text: str, name: str | None) -> Function:
    """The entry of that name, or the only one."""
    entries = [f for f in parse(text).functions if f.is_entry and f.has_body]
    names = ", ".join(f.name for f in entries) or "none"
    chosen = entries if name is None else [f for f in entries if f.name == name]
    if len(chosen) == 1:
        return chosen[0]
    if name is None:
        count = f"{len(entries)} entries" if len(entries) != 1 else "1 entry"
        raise ArgumentError(f"this PTX has {count} ({names}): say which with --entry")
    raise ArgumentError(f"this PTX has no entry {name!r}; it has {names}")


def _ctas(text: str, total: int) -> list[int] | None:
    if not text:
        return None
    words = {"first": 0, "last": total - 1}
    chosen = []
    for word in text.split(","):
        if word not in words and not word.isdigit():
            raise ArgumentError(f"--ctas takes first, last and numbers, separated by commas, not {word!r}")
        chosen.append(words[word] if word in words else int(word))
    return list(dict.fromkeys(chosen))
