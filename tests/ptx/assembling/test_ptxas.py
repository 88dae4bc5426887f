"""Assembling with ptxas: budgets hold, figures are those of nvJitLink where there are none, refusals in full text."""

from pathlib import Path

import numpy as np
import pytest
from small_kernels import add_ptx

from tinygpu.devices import device
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.assembling.assembler import AssemblerError, AssemblerUnavailable, assemble, launch_registers
from tinygpu.ptx.assembling.ptxas import Ptxas, find_ptxas
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@pytest.fixture(scope="module")
def ptxas() -> Ptxas:
    try:
        return find_ptxas()
    except AssemblerUnavailable as missing:
        pytest.skip(str(missing))


def program(folder: Path, body: str) -> Path:
    """A program in the place of ptxas."""
    folder.mkdir(exist_ok=True)
    made = folder / "ptxas"
    made.write_text(f"#!/bin/sh\n{body}\n")
    made.chmod(0o755)
    return made


def test_the_machine_code_has_the_budgets_that_nvjitlink_ignores(ptxas: Ptxas) -> None:
    problem = MatmulHopper.problem(m=1024, n=1024, k=1024, dtypes={"a": "bf16"})
    space = build_space(MatmulHopper, problem, device("h100"))
    cooperative = space.space.restrict({"bm": 128, "bn": 256, "schedule": "cooperative"})
    (point,) = cooperative.sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert "setmaxnreg" in kernel.ptx
    whole, linked = ptxas.assemble(kernel.ptx, "sm_90a"), assemble(kernel.ptx, "sm_90a")
    assert (linked.heeds_budgets, linked.loadable) == (False, None)
    assert whole.heeds_budgets
    assert whole.loadable == whole.cubin
    assert whole.cubin.startswith(b"\x7fELF")
    # what every thread gets at the launch
    assert whole.registers == linked.registers
    assert whole.registers * kernel.threads <= 65536
    assert whole.registers % 8 == 0


BUDGETED = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 y) DIRECTIVES
{
    .reg .b32 %r; .reg .b64 %rd;
    ld.param.u64 %rd, [y]; // setmaxnreg in a comment is none
    BUDGET
    mov.u32 %r, %tid.x; st.global.u32 [%rd], %r; ret;
}
"""


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 60))])
def test_the_registers_at_launch_are_those_that_ptxas_allots(ptxas: Ptxas, seed: int) -> None:
    """Any size of a CTA and any number of CTAs that an SM holds, .maxntid or .reqntid in one or three dimensions."""
    rng = np.random.default_rng(seed)
    ctas = int(rng.choice([1, 1, 2, 3, 4, 7]))
    threads = int(rng.integers(32, max(33, 1200 // ctas)))
    size = str(rng.choice([f"{threads}", f"{threads}, 1, 1", f"{-(-threads // 2)}, 2"]))
    directives = f".{rng.choice(['maxntid', 'reqntid'])} {size} .minnctapersm {ctas}"
    if seed % 4 == 3:
        directives = f".maxntid {min(threads, 128)} .maxnreg {8 * int(rng.integers(5, 20))}"
    text = BUDGETED.replace("DIRECTIVES", directives).replace("BUDGET", "setmaxnreg.dec.sync.aligned.u32 24;")
    whole, linked = ptxas.assemble(text, "sm_90a"), assemble(text, "sm_90a")
    assert whole.heeds_budgets
    assert not linked.heeds_budgets
    assert launch_registers(text) == linked.registers == whole.registers, directives


@pytest.mark.parametrize("directives", ["", ".maxntid 384", ".minnctapersm 1", ".maxntid 128 .minnctapersm 32"])
def test_where_nothing_says_how_many_registers_there_are_budgets_are_ignored(ptxas: Ptxas, directives: str) -> None:
    text = BUDGETED.replace("DIRECTIVES", directives).replace("BUDGET", "setmaxnreg.dec.sync.aligned.u32 40;")
    whole, linked = ptxas.assemble(text, "sm_90a"), assemble(text, "sm_90a")
    assert launch_registers(text) is None
    assert not whole.heeds_budgets
    assert abs(whole.registers - linked.registers) <= 4


def test_a_kernel_without_budgets_has_no_registers_of_its_own_at_launch() -> None:
    text = BUDGETED.replace("DIRECTIVES", ".maxntid 384 .minnctapersm 1").replace("BUDGET", "")
    assert launch_registers(text) is None


def test_the_figures_of_a_kernel_without_budgets_are_those_of_nvjitlink(ptxas: Ptxas) -> None:
    text = add_ptx()
    one, other = ptxas.assemble(text, "sm_90"), assemble(text, "sm_90")
    assert one.loadable is not None
    assert other.loadable is not None
    assert abs(one.registers - other.registers) <= 4
    assert (one.spills, one.stack_bytes, one.static_smem_bytes, one.barriers, one.warnings) == (False, 0, 0, 0, ())


def test_a_refusal_names_the_line_and_stops_nothing(ptxas: Ptxas) -> None:
    wrong = add_ptx(last="add.f32 %f0, %f0, %nothing;")
    line = wrong.splitlines().index("  add.f32 %f0, %f0, %nothing;") + 1
    good, refused, no_kernel = ptxas.assemble_many([add_ptx(), wrong, ".version 7.0\n.target sm_80"], "sm_90")
    assert not isinstance(good, AssemblerError)
    assert isinstance(refused, AssemblerError)
    assert (refused.faults[0].line, refused.faults[0].text) == (line, "add.f32 %f0, %f0, %nothing;")
    assert str(no_kernel) == "[sm_90] the PTX holds 0 kernels, and one is assembled at a time"


def test_machine_code_loads_on_drivers_that_are_no_older() -> None:
    made = Ptxas(Path("ptxas"), (13, 1, 80))
    assert [made.loads_on(cuda) for cuda in ((12, 9), (13, 0), (13, 1), (13, 2), (14, 0))] == [
        False, False, True, True, False,
    ]  # fmt: skip
    assert str(made) == "ptxas 13.1.80"


def test_what_is_no_ptxas_is_refused(tmp_path: Path) -> None:
    said = program(tmp_path / "a", "echo 'Cuda compilation tools, release 12.9, V12.9.86'")
    assert find_ptxas(said) == Ptxas(said, (12, 9, 86))
    other = program(tmp_path / "b", "echo hello")
    with pytest.raises(AssemblerUnavailable) as error:
        find_ptxas(other)
    assert str(error.value) == f"{other} is no ptxas: asked for its version, it says 'hello'"
    absent = tmp_path / "absent"
    with pytest.raises(AssemblerUnavailable) as error:
        find_ptxas(absent)
    assert str(error.value) == f"{absent} cannot be run: [Errno 2] No such file or directory: '{absent}'"


def test_where_there_is_none_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinygpu.ptx.assembling.ptxas._of_wheel", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssemblerUnavailable) as error:
        find_ptxas()
    assert str(error.value) == "there is no ptxas here: pip install nvidia-cuda-nvcc, or give that of a CUDA toolkit"
