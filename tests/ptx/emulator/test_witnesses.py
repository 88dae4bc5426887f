"""Foreign kernels judge what the emulator reads out of tcgen05: another reading, and they go wrong.

The table of readings is `tinygpu.ptx.cards.readings`, what witnesses do `witness_kernels.py`, and what another reading
would be `misreadings.py`.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from misreadings import MISREADINGS, anew
from witness_kernels import RIGHT, WITNESS, WITNESSES, outcome

from tinygpu.ptx.cards.readings import READINGS, Reading
from tinygpu.ptx.emulator.instructions import tcgen05_mma
from tinygpu.ptx.emulator.state import tensor_order
from tinygpu.ptx.emulator.units.matrix_descriptors import _TCGEN05_SWIZZLES, MatrixDescriptor
from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS, InstructionDescriptor
from tinygpu.ptx.emulator.units.tensor_memory_maps import ACCESS_SHAPES, COPY_SHAPES, LayoutId

JUDGED = [(r, w) for r in READINGS for w in r.witnesses]


@pytest.mark.parametrize("witness", list(WITNESS))
def test_a_witness_is_right(witness: str) -> None:
    assert outcome(witness) == RIGHT


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("reading", "witness"), JUDGED, ids=[f"{r.key} - {w}" for r, w in JUDGED])
def test_another_reading_makes_the_witness_go_wrong(
    reading: Reading, witness: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew(monkeypatch)
    MISREADINGS[reading.key](monkeypatch)
    assert outcome(witness) != RIGHT, f"{witness} does not need to read {reading.key} as: {reading.says}"


def facts() -> set[str]:
    """Everything that the emulator's tables let it read out of a tcgen05 operand, as keys of readings."""
    matrix = {f.name for f in dataclasses.fields(MatrixDescriptor)} - {"unit", "problems"}
    word = {f.name for f in dataclasses.fields(InstructionDescriptor)} - {"kind", "k"}
    operands = {f.name for f in dataclasses.fields(tcgen05_mma.Operands)} - {"d", "a", "b", "descriptor", "sfa", "sfb"}
    swizzles = {(s.name, major) for s in _TCGEN05_SWIZZLES.values() for major in ("k-major", "mn-major")}
    swizzles -= {("128B_ATOM_32B", "k-major")}
    kinds = KINDS.values()
    packed = ("", ", packed")
    return {
        *(f"matrix descriptor: {name}" for name in matrix),
        *(f"instruction descriptor: {name}" for name in word),
        *(f"operand: {name}" for name in operands),
        *(f"swizzle: {name}, {major}" for name, major in swizzles),
        *(f"depth: {kind.name}" for kind in kinds),
        *(f"type: {kind.name} {element}" for kind in kinds for element in kind.types.values()),
        *(f"sums: {kind.name} {element}" for kind in kinds for element in kind.d_types),
        *(f"scales: {kind.name} {spelled}".rstrip() for kind in kinds for spelled in kind.blocks),
        *(f"scales: {element}" for kind in kinds for element in kind.scales),
        *(f"layout: {name}" for name in get_args(LayoutId)),
        *(f"{verb}: {shape}{how}" for verb in ("ld", "st") for shape in ACCESS_SHAPES for how in packed),
        *(f"cp: {name}" for name in COPY_SHAPES),
        *(f"order: {first} then {second}" for first, second in tensor_order.IN_ORDER),
    }


def test_every_fact_of_the_emulator_is_a_reading_and_no_reading_is_told_twice() -> None:
    keys = [r.key for r in READINGS]
    assert len(keys) == len(set(keys))
    assert facts() - set(keys) == set()
    # These tables are whole: a reading of theirs that the emulator does not have is one too many.
    whole = ("matrix descriptor", "instruction descriptor", "depth", "type", "sums", "order")
    assert {k for k in keys if k.split(": ")[0] in whole} - facts() == set()


def test_witnesses_are_kernels_and_every_judged_reading_has_another_reading() -> None:
    assert {w for _, w in JUDGED} <= set(WITNESS)
    assert {r.key for r in READINGS if r.witnesses} <= set(MISREADINGS)
    assert set(MISREADINGS) <= {r.key for r in READINGS}


def test_every_witness_judges_something() -> None:
    assert set(WITNESS) - {w for _, w in JUDGED} == set()


@pytest.mark.slow
@pytest.mark.parametrize("source", sorted(WITNESSES.glob("*.cu")), ids=lambda path: path.stem)
def test_the_compiler_still_makes_this_of_the_source(source: Path) -> None:
    sys.path.insert(0, str(WITNESSES))
    import make  # type: ignore[import-not-found]

    compiler, headers = make.nvcc(), make.headers()
    if compiler is None or headers is None:
        pytest.skip("needs nvcc and the headers of nvidia-cutlass")
    kept = source.with_suffix(".ptx").read_text(encoding="utf-8")
    release = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
    if kept.split("\n")[0].split(", ")[1] not in release:
        pytest.skip("another release of nvcc writes other PTX")
    assert make.compiled(source, compiler, headers) == kept
