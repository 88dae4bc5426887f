"""The package as it is installed: what is in the wheel, what an import costs, and which room knows which."""

import ast
import graphlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# folder -> the package that it is imported as
ROOMS = {"tinygpu": "tinygpu", "machines": "tinygpu.machines", "search": "tinygpu.search", "ptx": "tinygpu.ptx"}
DOORS = ("tinygpu.cli", "tinygpu.testing", "tinygpu.api")


def files_of(room: str) -> Iterator[Path]:
    return (
        path
        for path in sorted((ROOT / room).rglob("*"))
        if path.is_file() and not {"__pycache__", ".mypy_cache"} & set(path.parts) and path.suffix != ".pyc"
    )


def installed_path(room: str, path: Path) -> Path:
    return Path(*ROOMS[room].split("."), path.relative_to(ROOT / room))


def module_name(room: str, path: Path) -> str:
    parts = installed_path(room, path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(room, path): path for room in ROOMS for path in files_of(room) if path.suffix == ".py"}


# --- what is installed --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy of the sources so that nothing is written into the tree."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*ROOMS, "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(out), str(source)],
        capture_output=True,
        text=True,
    )
    if "No matching distribution found for setuptools" in build.stderr:
        pytest.skip("pip cannot fetch setuptools here, so no wheel can be built")
    assert build.returncode == 0, build.stderr
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.mark.end_to_end
def test_the_wheel_holds_the_files_of_the_tree_and_no_others(wheel: zipfile.ZipFile) -> None:
    in_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name}
    in_tree = {installed_path(room, path).as_posix() for room in ROOMS for path in files_of(room)}
    assert in_wheel == in_tree
    assert "tinygpu/py.typed" in in_wheel


@pytest.mark.end_to_end
def test_the_wheel_has_one_import_package_its_licence_and_its_command(wheel: zipfile.ZipFile) -> None:
    texts = {Path(name).name: wheel.read(name).decode() for name in wheel.namelist() if ".dist-info/" in name}
    assert texts["top_level.txt"].split() == ["tinygpu"]
    assert texts["LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "tinygpu = tinygpu.cli:main" in texts["entry_points.txt"]
    assert "Requires-Python: >=3.11" in texts["METADATA"]


def test_the_list_of_packages_is_the_folders_that_hold_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = project["tool"]["setuptools"]["packages"]
    folders = {
        module_name(room, path.parent / "__init__.py")
        for room in ROOMS
        for path in files_of(room)
        if path.suffix == ".py"
    }
    assert sorted(listed) == sorted(folders)
    assert folders <= set(MODULES), "a folder with Python files has no __init__.py"


def test_every_file_of_ptx_stands_in_a_package_that_the_plan_lists() -> None:
    """No file lies loose beside the packages; each package has a row, and tests have folders of the same names."""
    ptx = ROOT / "ptx"
    assert [path.name for path in sorted(ptx.glob("*.py"))] == ["__init__.py"]
    packages = {path.parent.name for path in ptx.glob("*/__init__.py")}
    plan = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("Inside `ptx/`")[1].split("\n\n")[1]
    rows = [line.split("|")[1] for line in plan.splitlines()[2:]]
    assert sorted(name.strip(" `") for row in rows for name in row.split(",")) == sorted(packages)
    folders = {path.parent.name for path in (ROOT / "tests" / "ptx").glob("*/test_*.py")}
    assert folders <= packages, folders - packages
    assert not list((ROOT / "tests" / "ptx").glob("test_*.py"))


def test_every_package_of_the_first_room_is_in_the_plan() -> None:
    written = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    plan = written.split("Inside `tinygpu/`")[1].split("\n\n")[1]
    rows = {name for line in plan.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert rows == {path.parent.name for path in (ROOT / "tinygpu").glob("*/__init__.py")}


def test_every_dependency_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    assert [line for line in project["dependencies"] + extras if ">=" not in line] == []


# --- what an import costs -----------------------------------------------------------------------------------------

HEAVY = {"sympy", "z3", "cuda", "rich", "typer", "hypothesis", "pytest", "ml_dtypes", "msgspec"}


def modules_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in run.stdout.split()}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert modules_after("import tinygpu") & HEAVY == set()
    assert {"sympy"} <= modules_after("import tinygpu.expressions")  # the check can see what it looks for


# Features that stand beside the core: loaded by who asks for them.
BESIDE = ("tinygpu.search.replay", "tinygpu.search.rl.gymnasium_env")
TRAINING = tuple(f"tinygpu.search.rl.{name}" for name in ("figures", "forest", "lesson", "ppo", "train"))


def test_nothing_of_the_core_imports_what_stands_beside_it() -> None:
    wrong = [
        f"{module} imports {name}"
        for module in sorted(MODULES)
        for name in imports_of(module)
        if within(name, *BESIDE) and not within(module, *BESIDE)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "statement",
    [
        "import tinygpu.search, tinygpu.search.minimize, tinygpu.search.strategies",
        pytest.param(
            "import tinygpu as tg; from tinygpu.machines.elementwise import Axpby;"
            " tg.tune(tg.space(Axpby, n=1000, device='a100'), seconds=1)",
            marks=pytest.mark.end_to_end,
        ),
    ],
)
def test_a_search_loads_no_replay_no_gymnasium_and_no_training(statement: str) -> None:
    program = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "tinygpu.search.minimize" in loaded
    assert [name for name in sorted(loaded) if within(name, "gymnasium", *BESIDE, *TRAINING)] == []


# module -> the extra that it needs, beyond what the package itself needs
OPTIONAL = {"tinygpu.search.rl.gymnasium_env": "gymnasium"}


@pytest.mark.end_to_end
def test_every_module_imports_without_cuda() -> None:
    absent = {module for module, needed in OPTIONAL.items() if importlib.util.find_spec(needed) is None}
    names = ", ".join(sorted(set(MODULES) - absent))
    program = f"import sys; sys.modules.update({{'cuda': None, 'cuda.bindings': None}}); import {names}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.end_to_end
def test_one_module_of_every_package_may_be_the_first_that_is_imported() -> None:
    """Packages that know each other come in one order, whoever asks first."""
    first = {module.rpartition(".")[0]: module for module in sorted(MODULES) if not module.endswith("__main__")}
    firsts = sorted(module for module in first.values() if room_of(module) == "tinygpu" and module not in OPTIONAL)
    assert len(firsts) > 15
    program = (
        "import importlib, sys\n"
        f"for module in {firsts}:\n"
        "    for name in [n for n in sys.modules if n.split('.')[0] == 'tinygpu']:\n"
        "        del sys.modules[name]\n"
        "    importlib.import_module(module)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# --- which room knows which ---------------------------------------------------------------------------------------


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def reached(module: str) -> set[str]:
    """Every module of ours that a module imports, itself or through others."""
    found, ahead = {module}, [module]
    while ahead:
        new = imports_of(ahead.pop(), for_types=False) & MODULES.keys() - found
        found |= new
        ahead += new
    return found


def test_spaces_are_asked_for_without_the_emulator() -> None:
    """`import tinygpu as tg; tg.space(...)` loads half of what tuning does."""
    running = ("tinygpu.ptx.emulator", "tinygpu.ptx.verification", "tinygpu.ptx.runtime", "tinygpu.testing")
    assert {name for name in reached("tinygpu.api.front") if within(name, *running)} == set()
    assert all(any(within(name, room) for name in reached("tinygpu.api.kernels")) for room in running)


@cache
def imports_of(module: str, *, for_types: bool = True) -> frozenset[str]:
    """Every module of ours that a file imports, anywhere in it; those for annotations alone only if `for_types`."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in nodes_of(parsed(path), for_types):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            # a name that is imported may itself be a module
            found.update(f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names)
    return frozenset(name for name in found if name == "tinygpu" or name.startswith("tinygpu."))


def nodes_of(tree: ast.AST, for_types: bool) -> Iterator[ast.AST]:
    """The statements inside; no expression has one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        if for_types or not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            yield node
            yield from nodes_of(node, for_types)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def room_of(module: str) -> str:
    """The package of the room that a module belongs to."""
    return next((package for package in list(ROOMS.values())[1:] if within(module, package)), "tinygpu")


def forbidden_to(module: str) -> tuple[str, ...]:
    if module == "tinygpu" or within(module, *DOORS):  # the package itself hands its calls on to a door
        return ()
    above = {
        "tinygpu": ("tinygpu.ptx", "tinygpu.machines", "tinygpu.search"),
        "tinygpu.ptx": ("tinygpu.machines", "tinygpu.search"),
        "tinygpu.machines": ("tinygpu.search",),
        "tinygpu.search": ("tinygpu.ptx", "tinygpu.machines"),
    }[room_of(module)]
    return (*above, *DOORS)


def test_no_room_imports_one_that_it_may_not_know() -> None:
    wrong = [
        f"{module} imports {name}"
        for module in sorted(MODULES)
        for name in sorted(imports_of(module))
        if within(name, *forbidden_to(module))
    ]
    assert wrong == []


def test_evidence_is_loaded_by_no_machine_and_no_search() -> None:
    """Specimens, twins, spellings and pictures of instructions are for their cards, for tests and checks, and for the
    pages of machines, which name the cards and which nobody loads.
    """
    evidence, checks, written = "tinygpu.ptx.cards", "tinygpu.testing", "tinygpu.api.pages"
    wrong = [
        f"{module} imports {name}"
        for module in sorted(MODULES)
        for name in sorted(imports_of(module))
        if (within(name, evidence) and not within(module, evidence, checks, written))
        or (within(name, written) and not within(module, written))
    ]
    assert wrong == []
    assert any(within(name, f"{evidence}.evidence") for name in imports_of(f"{evidence}.collect"))


def test_the_emulator_shares_nothing_with_what_it_checks() -> None:
    """It reads PTX text alone: no instruction, no lowering, and nothing of the language that kernels come from."""
    emulator = [module for module in MODULES if within(module, "tinygpu.ptx.emulator")]
    allowed = ("tinygpu.ptx.emulator", "tinygpu.dtypes")
    wrong = [
        f"{module} imports {name}" for module in emulator for name in imports_of(module) if not within(name, *allowed)
    ]
    assert wrong == []


def test_what_is_checked_does_not_lean_on_the_emulator() -> None:
    makers = [module for module in MODULES if within(module, "tinygpu.ptx.isa", "tinygpu.ptx.lowering")]
    wrong = [f"{m} imports {n}" for m in makers for n in imports_of(m) if within(n, "tinygpu.ptx.emulator")]
    assert wrong == []


@pytest.mark.parametrize("room", ROOMS.values())
def test_the_files_of_a_room_do_not_import_each_other_in_a_circle(room: str) -> None:
    """Imports inside functions count, and so do those for annotations alone, but not yet in ptx."""
    graph = {
        module: {
            name
            for name in imports_of(module, for_types=room != "tinygpu.ptx")
            if name != "tinygpu" and room_of(name) == room
        }
        for module in MODULES
        if room_of(module) == room
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        pytest.fail(" imports ".join(reversed(circle.args[1])))


def test_every_import_of_ours_exists() -> None:
    wrong = [
        f"{module} imports {name}" for module in sorted(MODULES) for name in imports_of(module) if name not in MODULES
    ]
    assert wrong == []
