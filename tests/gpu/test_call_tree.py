"""The package where nothing is installed: what is listed, and no library that a machine with a GPU may lack."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpu_call.tree import lay_out

ROOT = Path(__file__).parents[2]
# What only the machine that prepares needs; PyTorch and Triton come where they are imported.
BARRED = ("z3", "sympy", "ml_dtypes", "rich", "typer", "hypothesis", "pytest", "numba")
# Everything that runs there and imports no PyTorch.
THERE = (
    "tinygpu.ptx.measuring.__main__", "tinygpu.ptx.measuring.child", "tinygpu.ptx.calibration.__main__",
    "tinygpu.ptx.calibration.child", "gpu_call.run", "gpu_call.environment", "gpu_call.correctness",
    "gpu_call.side_by_side", "gpu_call.turns", "gpu_call.ours", "gpu_call.dense_0", "gpu_call.dense_1",
    "gpu_call.calibration", "gpu_call.gpu_tests", "gpu_call.counters", "gpu_call.sanitizer", "gpu_call.one_kernel",
    "gpu_call.collect",
)  # fmt: skip
BLOCKER = """
import importlib.abc, json, sys

class Barred(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BARRED:
            raise ImportError(f"{name} is not on that machine")

BARRED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Barred())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    lay_out(ROOT, folder)
    return folder


def test_packages_of_several_folders_become_one(tmp_path: Path) -> None:
    """Which folder is which package stands in pyproject.toml, and what is not listed there stays behind."""
    root, site = tmp_path / "root", tmp_path / "site"
    files = {
        "pkg/__init__.py": "", "pkg/data.json": "{}", "pkg/notes.txt": "", "pkg/inner/__init__.py": "",
        "room/__init__.py": "", "room/deep/__init__.py": "1", "room/deep/forms.txt": "f", "room/unlisted/a.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "pyproject.toml").write_text(
        '[tool.setuptools]\npackages = ["pkg", "pkg.inner", "pkg.room", "pkg.room.deep"]\n'
        '[tool.setuptools.package-dir]\npkg = "pkg"\n"pkg.room" = "room"\n'
        '[tool.setuptools.package-data]\npkg = ["*.json"]\n"pkg.room.deep" = ["*.txt"]\n'
    )
    assert lay_out(root, site) == 6
    laid = {p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()}
    assert laid == {
        "pkg/__init__.py", "pkg/data.json", "pkg/inner/__init__.py", "pkg/room/__init__.py",
        "pkg/room/deep/__init__.py", "pkg/room/deep/forms.txt",
    }  # fmt: skip


def run_there(site: Path, program: str, cwd: Path, barred: Sequence[str] = BARRED) -> str:
    """Runs a program with that package alone, from a folder elsewhere, where the barred libraries are not."""
    head = f"import sys\nsys.path[:0] = [{str(site)!r}, {str(ROOT / 'tests' / 'gpu')!r}]\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", head + BLOCKER + program, ",".join(barred)], cwd=cwd, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.end_to_end
def test_what_runs_there_needs_neither_solver_nor_algebra(site: Path, tmp_path: Path) -> None:
    program = f"""
import importlib
for name in {THERE!r}:
    importlib.import_module(name)
import tinygpu
print(json.dumps([tinygpu.__file__, sorted({{n.split('.')[0] for n in sys.modules}})]))
"""
    where, loaded = json.loads(run_there(site, program, tmp_path))
    assert Path(where).is_relative_to(site)
    assert "numpy" in loaded
    assert set(loaded) & {*BARRED, "cuda", "torch", "triton"} == set()


@pytest.mark.end_to_end
def test_the_tests_that_need_a_gpu_are_collected_without_a_solver(site: Path, tmp_path: Path) -> None:
    program = f"""
import pytest
from gpu_call.gpu_tests import files
words = ["--collect-only", "-m", "gpu", "-p", "no:cacheprovider", "-c", {str(ROOT / "pyproject.toml")!r}]
sys.exit(pytest.main([*map(str, files()), *words, "--rootdir", {str(ROOT)!r}]))
"""
    collected = run_there(site, program, tmp_path, barred=("z3",))
    assert "test_runtime_on_gpu.py::test_one_kernel_under_two_names_is_a_tie" in collected


def test_the_list_of_what_runs_there_is_whole() -> None:
    ours = {f"gpu_call.{p.stem}" for p in (ROOT / "tests" / "gpu" / "gpu_call").glob("*.py")}
    with_torch = {
        f"gpu_call.{name}" for name in ("beside", "problems_beside", "torch_stage", "triton_matmul", "triton_warm")
    }
    here = {"gpu_call.prepare", "gpu_call.chains", "gpu_call.assembling"}
    reached = {
        f"gpu_call.{name}"
        for name in (
            "__init__", "budget", "cases", "dense", "kit", "ncu_output", "places", "records", "report", "step", "tree",
        )
    }
    assert ours == {n for n in THERE if n.startswith("gpu_call")} | with_torch | here | reached


def test_the_barred_libraries_are_noticed(site: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="sympy is not on that machine"):
        run_there(site, "import tinygpu.expressions", tmp_path)
