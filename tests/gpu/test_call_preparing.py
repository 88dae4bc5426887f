"""Preparing the kit: what is assembled once, what a fault costs, which machine code travels, what the command says."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_call.assembling import NVJITLINK, Kept, assembler_for
from gpu_call.cases import Case, Plan
from gpu_call.prepare import main, prepare
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.assembling.assembler import AssemblerError, AssemblerUnavailable, Assembly, Fault
from tinygpu.ptx.assembling.ptxas import find_ptxas
from tinygpu.ptx.measuring.bundle import read_bundle
from tinygpu.spaces.build import build_space

pytest.importorskip("cuda.bindings.nvjitlink")
H100 = device("h100")
CODE = Assembly(b"\x7fELF", "sm_90a", 64, 0, 0, 0, 0, 1)


class Counting:
    """Assembles texts that are numbers, refuses odd ones, and counts."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def many(self, texts: Sequence[str], target: str) -> list[Assembly | AssemblerError]:
        self.seen += texts
        return [
            AssemblerError(target, (Fault(f"{t} is odd"),)) if int(t) % 2 else replace(CODE, cubin=t.encode())
            for t in texts
        ]


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=4))
def test_every_text_is_assembled_once_and_answers_are_in_order(batches: list[list[int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        counting = Counting()
        for batch in batches:
            # a new one each time: what was assembled lies on the disk
            found = Kept(counting.many, "ptxas 1", Path(folder)).many([str(n) for n in batch], "sm_90a")
            told = [int(a.cubin) if isinstance(a, Assembly) else a.faults[0].message for a in found]
            assert told == [f"{n} is odd" if n % 2 else n for n in batch]
        even = [t for t in counting.seen if int(t) % 2 == 0]
        assert len(even) == len(set(even))
        assert Kept(counting.many, "ptxas 2", Path(folder)).many(["0"], "sm_90a") == [replace(CODE, cubin=b"0")]
        assert counting.seen[-1] == "0"  # another assembler's code is not taken


def test_what_lies_on_the_disk_damaged_is_assembled_again(tmp_path: Path) -> None:
    counting = Counting()
    kept = Kept(counting.many, "ptxas 1", tmp_path)
    kept.many(["2"], "sm_90a")
    (file,) = tmp_path.iterdir()
    for damaged in (b"", b"{}", b"[]", file.read_bytes()[:40], b"\xff"):
        file.write_bytes(damaged)
        assert kept.many(["2"], "sm_90a") == [replace(CODE, cubin=b"2")]


@pytest.mark.end_to_end
def test_machine_code_of_the_kit_has_the_budgets_of_its_kernels(tmp_path: Path) -> None:
    try:
        find_ptxas()
    except AssemblerUnavailable as missing:
        pytest.skip(str(missing))
    assembler = assembler_for("13.9", None, tmp_path / "assembled")
    case = Case("m", "matmul_hopper", {"m": 256, "n": 256, "k": 128}, {"*": "bf16"}, kernels=4)
    kits = [
        prepare(
            Plan((case,), (), (), (), ()), H100, tmp_path / f"{made.name}.zip", tmp_path / made.name, assembler=made,
            keep=False, say=lambda line: None,
        )
        for made in (assembler, NVJITLINK)
    ]  # fmt: skip
    whole, linked = (read_bundle(tmp_path / kit.assembler / kit.jobs[0].file) for kit in kits)
    budgets = [b"setmaxnreg" in whole.ptx(e) for e in whole.entries]
    assert any(budgets)
    assert all(e.cubin and whole.cubin(e) for e in whole.entries)
    assert [e.cubin for e in linked.entries] == [not b for b in budgets]
    assert all(e.registers <= 168 or e.launch.threads <= 128 for e in whole.entries)


@pytest.mark.end_to_end
def test_a_kernel_whose_ctas_share_tiles_is_counted_with_workspaces_of_its_grid(tmp_path: Path) -> None:
    """Of all CTAs that the GPU holds, more than there are tiles."""
    sizes = {"m": 128, "n": 128, "k": 512}
    space = build_space(MatmulHopper, MatmulHopper.problem(**sizes, dtypes={"a": "bf16"}), H100)
    shared = space.space.restrict({"stream_k": 1, "bk": 32, "bm": 64})
    point = dict(shared.sample(1, np.random.default_rng(0))[0])
    case = Case("hopper", "matmul_hopper", sizes, {"*": "bf16"}, kernels=1, points=(point,))
    few = H100.with_figures({"sm_count": replace(H100.given("sm_count"), value=12)}, name="few")
    kit = prepare(
        Plan((), (), (), (), (case,)), few, tmp_path / "k.zip", tmp_path / "b", assembler=NVJITLINK, keep=False,
        say=lambda line: None,
    )  # fmt: skip
    assert [name for name, _ in kit.missing if name.startswith("counted")] == []
    (job,) = kit.jobs
    ctas = next(c["value"] for c in job.counters if c["counter"] == "ctas")
    assert ctas > 2


@pytest.mark.end_to_end
def test_a_fault_of_ours_costs_its_problem_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*asked: object, **how: object) -> None:
        raise KeyError("part0")

    monkeypatch.setattr("gpu_call.prepare.emulate", broken)
    axpby = Case("axpby", "axpby", {"n": 64}, kernels=1)
    kit = prepare(
        Plan((axpby,), (), (), (), (axpby,)), H100, tmp_path / "k.zip", tmp_path / "b", assembler=NVJITLINK, keep=False,
        say=lambda line: None,
    )  # fmt: skip
    assert [j.role for j in kit.jobs] == ["correct"]
    assert ("counted: axpby", "KeyError: 'part0'") in kit.missing


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "ptxas"
    old.write_text("#!/bin/sh\necho V13.5.37\n")
    old.chmod(0o755)
    words = ["--device", "h100", "-o", str(tmp_path / "k.zip"), "--small"]
    assert main([*words, "--ptxas", str(old)]) == 2
    assert capsys.readouterr().err == (
        "tests/gpu/prepare.py: drivers of CUDA 13.0 need not take machine code of ptxas 13.5.37: pip install "
        "'nvidia-cuda-nvcc==13.0.*'\n"
    )
    assert main([*words, "--cuda", "new"]) == 2
    assert capsys.readouterr().err == "tests/gpu/prepare.py: a version of CUDA is written like 13.0, not 'new'\n"
    assert main(["--device", "h1000", "--ptxas", str(old)]) == 2
    assert capsys.readouterr().err.startswith("tests/gpu/prepare.py: unknown device 'h1000'; ")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "the following arguments are required: --device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100", "h200"])
def test_the_whole_kit_is_made_and_nothing_is_missing(name: str, tmp_path: Path) -> None:
    """The command that a machine without a GPU is given, to its end: ten minutes or so of a processor."""
    out = tmp_path / "gpu-kit.zip"
    assert main(["--device", name, "-o", str(out)]) == 0
    from gpu_call.kit import MOST_BYTES, ROLES, open_kit

    kit = open_kit(out, tmp_path / "opened")
    assert out.stat().st_size <= MOST_BYTES
    assert kit.device == device(name).name
    from gpu_call.cases import FULL

    for role in ROLES:
        assert [j.name for j in kit.of(role)] == [c.name for c in getattr(FULL, role)]
    refused = [(what, why) for what, why in kit.missing if not why.startswith("ships, and is timed beside nothing")]
    assert refused == []
    for job in kit.jobs:
        bundle = read_bundle(tmp_path / "opened" / job.file)
        assert [e.name for e in bundle.entries if not e.cubin] == []
    assert json.loads((tmp_path / "opened" / "kit.json").read_text())["assembler"].startswith("ptxas 13.0.")
