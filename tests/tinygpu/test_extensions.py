"""What other packages offer: found by name at every door, and every clash and fault is one sentence that names them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinygpu as tg
from tinygpu.api.machines import MachineNotFound, family
from tinygpu.api.offers import offers, warnings
from tinygpu.devices import device
from tinygpu.extensions import GROUPS, ExtensionError, extension, extensions, key
from tinygpu.search.strategies import check_name, named

KIT = Path(__file__).parents[1] / "thirdparty" / "row_kit"
# package -> group -> name -> module:attribute
Packages = Mapping[str, Mapping[str, Mapping[str, str]]]
ROW_KIT = {
    "row-kit": {
        "machines": {"row_peak": "row_kit.machine:RowPeak"},
        "instructions": {"farther": "row_kit.instruction:Farther"},
        "devices": {"half_a100": "row_kit.device:HALF_A100"},
        "strategies": {"backwards": "row_kit.strategy:backwards"},
    }
}


def lay_out(folder: Path, packages: Packages) -> None:
    """What pip writes beside installed packages."""
    for package, groups in packages.items():
        info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = []
        for group, names in groups.items():
            lines += [f"[tinygpu.{group}]", *(f"{name} = {value}" for name, value in names.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@contextmanager
def installed(packages: Packages, *places: Path) -> Iterator[Path]:
    """These packages, as if pip had installed them; their modules are in the places and in the folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder, packages)
        before = list(sys.path)
        sys.path[:0] = [str(folder), *map(str, places)]
        importlib.invalidate_caches()
        extensions.cache_clear()
        try:
            yield folder
        finally:
            sys.path[:] = before
            importlib.invalidate_caches()
            extensions.cache_clear()


def test_what_the_kit_says_of_itself_is_what_is_tried_here() -> None:
    """Its entry points, as pip would read them."""
    import tomllib

    said = tomllib.loads((KIT / "pyproject.toml").read_text())["project"]
    assert said["name"] in ROW_KIT
    assert {f"tinygpu.{group}": names for group, names in ROW_KIT["row-kit"].items()} == said["entry-points"]


@pytest.mark.end_to_end
def test_a_package_is_found_at_the_front_door() -> None:
    with installed(ROW_KIT, KIT):
        space = tg.space("row-peak", m=50, n=300, device="half_a100")
        assert (space.machine.__name__, space.device.sm_count) == ("RowPeak", 54)
        found = tg.tune(space, strategy="backwards", evaluations=3)
        assert found.verification.passed
        assert found.searched[0].result.strategy == "backwards"
        assert family("row-kit:row_peak").machines == (space.machine,)
        assert family("tinygpu:axpby").machines[0].__name__ == "Axpby"
        assert device("tinygpu:a100") is device("a100")
        for group in GROUPS:
            assert [(o.name, o.whose, o.wrong) for o in offers(group) if o.whose != "tinygpu"] == [
                (name, "row-kit 1.0", "") for name in ROW_KIT["row-kit"][group]
            ]
            assert warnings(group) == ()


@pytest.mark.end_to_end
def test_a_package_is_found_by_the_command_line(tmp_path: Path) -> None:
    with installed(ROW_KIT, KIT) as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(KIT)])}

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", "from tinygpu.cli import main; main()", *words]
            return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)

        listed = run("list", "--json")
        assert (listed.returncode, listed.stderr) == (0, "")
        theirs = [o for o in json.loads(listed.stdout) if o["whose"] != "tinygpu"]
        assert [(o["group"], o["name"], o["what"]) for o in theirs] == [
            ("machines", "row_peak", "y[i] = the largest |x[i, j]|"),
            ("instructions", "farther", "d = the larger of |a| and |b|."),
            ("devices", "half_a100", "sm_80, 54 SMs, 40 MiB of L2"),
            ("strategies", "backwards", "All points in the order opposite to the space's own."),
        ]
        where = ("--shape", "m=50,n=300", "--device", "half_a100", "--strategy", "backwards", "--evaluations", "3")
        tuned = run("tune", "row_peak", *where)
        assert tuned.returncode == 0, tuned.stderr
        assert "winner: RowPeak" in tuned.stdout
        assert "on Half-A100" in tuned.stdout
        lay_out(folder, {"row-kit-2": {"machines": {"row_peak": "no_such:Thing"}}})
        refused = run("tune", "row_peak", *where)
        sentence = "'row_peak' is offered by row-kit 1.0 and row-kit-2 1.0; say which, as row-kit:row_peak"
        assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", f"tinygpu: {sentence}\n")
        listed = run("list", "machines")
        assert listed.returncode == 1
        assert listed.stderr.splitlines() == [
            "tinygpu: 'row_peak' of row-kit-2 1.0 (tinygpu.machines) cannot be loaded from no_such:Thing: "
            "ModuleNotFoundError: No module named 'no_such'",
            f"tinygpu: {sentence}",
        ]


BROKEN = {
    "no module": ("not_there:Thing", "ModuleNotFoundError: No module named 'not_there'"),
    "no attribute": ("row_kit.machine:Nothing", "AttributeError: module 'row_kit.machine' has no attribute 'Nothing'"),
    "no value": ("1 / 0", "AttributeError: 'NoneType' object has no attribute 'group'"),
    "a module that raises": ("raising:thing", "{place}/raising.py:1 (raise OSError('out')): OSError: out"),
    "a module that ends": ("ending:thing", "it ends the process, with status 4"),
    "a module that is no Python": ("odd:thing", "{place}/odd.py:1: invalid syntax: def def"),
}


@pytest.mark.parametrize("group", ["machines", "devices", "strategies"])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_package_is_one_sentence_where_it_is_asked_for_and_nowhere_else(group: str, broken: str) -> None:
    value, sentence = BROKEN[broken]
    with installed({"bad-kit": {group: {"bad": value}}}, KIT) as folder:
        (folder / "raising.py").write_text("raise OSError('out')\n")
        (folder / "ending.py").write_text("raise SystemExit(4)\n")
        (folder / "odd.py").write_text("def def\n")
        with pytest.raises(ExtensionError) as refused:
            asked(group, "bad")
        assert str(refused.value) == (
            f"'bad' of bad-kit 1.0 (tinygpu.{group}) cannot be loaded from {value}: {sentence.format(place=folder)}"
        )
        for one in GROUPS:
            assert [o.wrong for o in offers(one) if o.wrong] == ([str(refused.value)] if one == group else [])
        assert family("axpby").machines[0].__name__ == "Axpby"
        assert device("a100").cc == 80
        check_name("random")


@pytest.mark.parametrize(
    ("group", "value", "sentence"),
    [
        ("machines", "math:pi", "not a subclass of Machine or Plan: math:pi is 3.141592653589793"),
        ("devices", "math:pi", "not a Device, and no path of a device file: math:pi is 3.141592653589793"),
        ("strategies", "math:pi", "not a strategy, which is a function: math:pi is 3.141592653589793"),
        ("instructions", "math:pi", "not an instruction or a class of them: math:pi is 3.141592653589793"),
    ],
)
def test_what_is_something_else_is_one_sentence(group: str, value: str, sentence: str) -> None:
    with installed({"odd-kit": {group: {"odd": value}}}):
        (wrong,) = [o.wrong for o in offers(group) if o.wrong]
        assert wrong == f"'odd' of odd-kit 1.0 (tinygpu.{group}) is {sentence}"


def asked(group: str, name: str) -> object:
    """What every door asks, for a name of a group."""
    if group == "machines":
        return family(name).machines[0]
    return device(name) if group == "devices" else named(name)


OURS = {"machines": "axpby", "devices": "a100", "strategies": "random"}
THEIRS = {kind: next(iter(ROW_KIT["row-kit"][kind].values())) for kind in OURS}
names = st.sampled_from(["one", "two", "One", "o-n-e", "ours"])
package_names = st.sampled_from(["kit-a", "kit-b", "kit_c"])


@settings(max_examples=20)
@given(
    st.sampled_from(sorted(OURS)), st.dictionaries(package_names, st.sets(names, min_size=1, max_size=3), max_size=3)
)
def test_every_name_has_one_owner_or_one_sentence(group: str, offered: dict[str, set[str]]) -> None:
    """Whatever packages offer: a name is its only owner's thing, or a sentence that names all who offer it."""
    called = {package: {n if n != "ours" else OURS[group] for n in some} for package, some in offered.items()}
    packages = {package: {group: dict.fromkeys(some, THEIRS[group])} for package, some in called.items()}
    with installed(packages, KIT):
        for name in {OURS[group], "nobodys", *(n for some in called.values() for n in some)}:
            owners = sorted(p for p, some in called.items() for n in some if key(n) == key(name))
            ours = name == OURS[group]
            if len(owners) + ours > 1:
                with pytest.raises(ExtensionError) as refused:
                    asked(group, name)
                told = str(refused.value)
                twice = " twice by " in told
                assert twice or (all(f"{o} 1.0" in told for o in owners) and ("tinygpu and" in told) == ours)
                assert not twice or len(set(owners)) < len(owners)
                assert told in warnings(group)
            elif owners or ours:
                assert asked(group, name) is not None
            else:
                with pytest.raises(ValueError, match=r"^(there is no|unknown)") as refused:
                    asked(group, name)
                assert not isinstance(refused.value, ExtensionError)
            for owner in owners:
                if owners.count(owner) == 1:
                    assert asked(group, f"{owner}:{name}") is not None
            if ours:
                assert asked(group, f"tinygpu:{name}") is not None


def test_names_with_a_package_that_does_not_offer_them() -> None:
    with installed(ROW_KIT, KIT):
        nobody = r"^no package 'row-kit' offers 'nothing' among its tinygpu\.machines$"
        with pytest.raises(ExtensionError, match=nobody):
            family("row-kit:nothing")
        known = r"^there is no machine 'tinygpu:nothing'; there are matmul, .*, row_peak, and your own"
        with pytest.raises(MachineNotFound, match=known):
            family("tinygpu:nothing")
        assert extension("machines", "matmul", ["matmul"]) is None


@pytest.mark.end_to_end
def test_nothing_of_a_package_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys; from tinygpu.api.machines import family; from tinygpu.devices import device; "
        "family('axpby'); device('a100'); print([n for n in sys.modules if n.startswith('row_kit')])"
    )
    with installed(ROW_KIT, KIT) as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(KIT)])}
        command = [sys.executable, "-c", program]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_an_offered_instruction_is_checked_by_itself(tmp_path: Path) -> None:
    """What its text does on random operands, beside its meaning; a wrong one is found."""
    from tinygpu.testing.offered import CannotBeChecked, check_instruction

    text = (KIT / "row_kit" / "instruction.py").read_text()
    assert text.count("np.abs(b))") == 1
    (tmp_path / "wrong_kit.py").write_text(
        text.replace("np.abs(b))", "b)")
        + "\n\nclass Needs(Farther):\n    def __init__(self, kind):\n        self.kind = kind\n"
    )
    packages = {
        **ROW_KIT,
        "wrong-kit": {"instructions": {"wrong": "wrong_kit:Farther", "load": "tinygpu.ptx.isa:LdMatrix",
                                       "sums": "wrong_kit:Needs"}},
    }  # fmt: skip
    with installed(packages, KIT, tmp_path):

        def told(name: str) -> str:
            one = extension("instructions", name)
            assert one is not None
            return check_instruction(one)

        assert told("farther") == ""
        assert told("wrong").startswith("'wrong' of wrong-kit 1.0 (tinygpu.instructions): ")
        moves = r"^'load' of .* moves or combines tiles; check a machine that uses it$"
        with pytest.raises(CannotBeChecked, match=moves):
            told("load")
        with pytest.raises(CannotBeChecked, match=r"^'sums' of .* takes arguments; check a machine that uses it, or "):
            told("sums")
