"""What the call runs: every problem is taken by a machine, has its counterpart in PyTorch, and a name of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_call.cases import FULL, PROJECTIONS, ROWS, SMALL, Plan
from gpu_call.chains import family_of, without_comparison
from gpu_call.kit import ROLES
from gpu_call.prepare import asked
from gpu_call.side_by_side import FIRST

from tinygpu.api.machines import FAMILIES
from tinygpu.api.problems import problems

pytest.importorskip("cuda.bindings.driver")
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("plan", [FULL, SMALL], ids=["full", "small"])
def test_every_problem_is_taken_by_a_machine_and_has_a_name_of_its_own(plan: Plan) -> None:
    for role in ROLES:
        cases = getattr(plan, role)
        assert len({c.name for c in cases}) == len(cases)
        for case in cases:
            accepted, _ = problems(family_of(case.machine), asked(case))
            assert accepted, case.name
            for part in case.points:
                names = {p.name for p in accepted[0][0].params()} | {c.name for c in accepted[0][0].choices()}
                assert part.keys() <= names
    # rows of one table are told apart by their names
    table = [c.name for c in (*plan.matmuls, *plan.streams)]
    assert len(set(table)) == len(table)


def test_every_shipped_machine_is_verified_and_timed() -> None:
    verified = {c.machine for c in FULL.correct}
    verified |= {m for name in verified for m in FAMILIES.get(name, ())}
    matmuls_and_chains = {"axpby", "bias_relu", *FAMILIES["matmul"]}
    assert matmuls_and_chains <= verified
    assert not set(without_comparison({c.machine for c in (*FULL.matmuls, *FULL.streams)})) & matmuls_and_chains


def test_the_shapes_are_those_of_the_models_and_the_dense_samples_are_dense() -> None:
    sizes = {tuple(c.dims[d] for d in "mnk") for c in FULL.matmuls}
    assert {(n, n, n) for n in (4096, 8192)} <= sizes
    # hidden size, heads, KV heads (of 128), inner size
    for model, (hidden, heads, kv, inner) in {
        "Llama-3-8B": (4096, 32, 8, 14336), "Llama-3-70B": (8192, 64, 8, 28672),
    }.items():  # fmt: skip
        assert heads * 128 == hidden
        layers = {layer: (n, k) for name, layer, n, k in PROJECTIONS if name == model}
        assert layers == {
            "qkv": ((heads + 2 * kv) * 128, hidden), "o": (hidden, hidden), "gate, up": (2 * inner, hidden),
            "down": (hidden, inner),
        }  # fmt: skip
        assert {(m, *shape) for m in ROWS for shape in layers.values()} <= sizes
    assert sorted(ROWS) == [1, 16, 64, 512, 4096]
    # a call that ends early has products with every number of rows
    assert {c.dims["m"] for c in FULL.matmuls[:FIRST]} == {8192, *ROWS}
    assert [c.dims["m"] for c in FULL.matmuls[2 : 2 + len(ROWS)]] == list(ROWS) == [4096, 1, 512, 16, 64]
    assert [(c.dims["m"], c.dtypes["*"]) for c in FULL.dense] == [(4096, "bf16"), (8192, "bf16")]
    assert all(c.kernels >= 500 for c in FULL.dense)


def test_everything_that_is_timed_has_its_counterpart_in_pytorch() -> None:
    machines = sorted({c.machine for plan in (FULL, SMALL) for c in (*plan.matmuls, *plan.streams)})
    program = (
        "import json, sys\nfrom gpu_call.problems_beside import function_of\n"
        f"print(json.dumps([function_of(name).kernels for name in {machines!r}]))"
    )
    folders = [TESTS / "gpu", TESTS / "gpu" / "fake", TESTS / "ptx" / "fake", TESTS / "ptx" / "calibration"]
    path = os.pathsep.join([*map(str, folders), *[p for p in sys.path if p]])
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(count >= 1 for count in json.loads(done.stdout))
