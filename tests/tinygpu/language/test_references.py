"""What a reference gives is every output by name, or a sentence that says what it must return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.language.declared import Declared
from tinygpu.language.reference import reference_of
from tinygpu.users_code import LIBRARIES, PACKAGE, UsersCodeError, is_theirs, raised_by_them, said, users_code

ONE, TWO = {"y": (2, 3)}, {"y": (2, 3), "z": (4,)}
Y, Z = np.zeros((2, 3)), np.zeros(4)
WANTED = {1: "an array of shape (2, 3) for y"}
WANTED[2] = f"a dict with {WANTED[1]} and an array of shape (4,) for z"


def called(given: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    class Given(Declared):
        reference = staticmethod(lambda **arguments: given)

    return reference_of(Given, shapes)(x=1)


def test_outputs_come_by_name() -> None:
    assert called(Y, ONE) == {"y": Y}
    assert called({"y": Y}, ONE) == {"y": Y}
    assert called({"z": Z, "y": Y, "more": 1}, TWO) == {"y": Y, "z": Z}
    assert list(called({"z": Z, "y": Y}, TWO)) == ["y", "z"]
    assert called(3.5, {"y": ()}) == {"y": 3.5}
    for kind in (bool, np.int8, np.uint16, np.float32):
        assert called(Y.astype(kind), ONE)["y"].dtype == kind


@pytest.mark.parametrize(
    ("given", "shapes", "sentence"),
    [
        (None, ONE, f"None: it must return {WANTED[1]}"),
        ("text", ONE, f"a str: it must return {WANTED[1]}"),
        ([1, 2], ONE, f"a list: it must return {WANTED[1]}"),
        (object(), ONE, f"an object: it must return {WANTED[1]}"),
        (1, ONE, f"an array of shape (): it must return {WANTED[1]}"),
        (Z, ONE, f"an array of shape (4,): it must return {WANTED[1]}"),
        (Y.T, ONE, f"an array of shape (3, 2): it must return {WANTED[1]}"),
        (Y.astype(str), ONE, "an array of <U32: it must return numbers"),
        (Y.astype(object), ONE, "an array of object: it must return numbers"),
        (Y.astype(complex), ONE, "an array of complex128: it must return numbers"),
        ({}, ONE, f"an empty dict, and there is no 'y' in it: it must return {WANTED[1]}"),
        ({"a": Y, "b": Y}, ONE, f"'a', 'b', and there is no 'y' in it: it must return {WANTED[1]}"),
        (Y, TWO, f"one ndarray, and there is no 'z' in it: it must return {WANTED[2]}"),
        ({"y": Y}, TWO, f"'y', and there is no 'z' in it: it must return {WANTED[2]}"),
        ({"y": Y, "z": None}, TWO, f"None for z: it must return {WANTED[2]}"),
        ({"y": Y, "z": Y}, TWO, f"an array of shape (2, 3) for z: it must return {WANTED[2]}"),
        ({"y": Y.astype(str), "z": Z}, TWO, "an array of <U32 for y: it must return numbers"),
    ],
)
def test_what_is_not_numbers_of_their_shapes_is_refused(given: Any, shapes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsersCodeError) as refused:
        called(given, shapes)
    assert str(refused.value) == f"Given.reference returns {sentence}"


HERE = Path(__file__).resolve()


def test_a_file_is_theirs_unless_it_is_ours_or_was_installed(tmp_path: Path) -> None:
    ours = [PACKAGE / "dtypes.py", PACKAGE.parent / "ptx" / "build.py", PACKAGE.parent / "search" / "minimize.py"]
    installed = [Path(folder) / "sub" / "module.py" for folder in LIBRARIES]
    for path in (*ours, *installed, "<string>", "<frozen importlib._bootstrap>"):
        assert not is_theirs(str(path))
    for path in (tmp_path / "mine.py", HERE, PACKAGE / "machines" / "elementwise.py", "mine.py"):
        assert is_theirs(str(path))


def fails() -> None:
    raise KeyError("rows")


def raised(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as error:
        call()
    return error.value


def test_what_was_raised_names_the_last_line_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE.parent)
    inside = raised(fails)
    line = fails.__code__.co_firstlineno + 1
    assert said(inside) == f"{HERE.name}:{line}, in fails (raise KeyError(\"rows\")): KeyError: 'rows'"
    assert raised_by_them(inside)
    below = raised(lambda: is_theirs(None))  # type: ignore[arg-type]
    assert not raised_by_them(below)
    assert said(below).startswith(f"{HERE.name}:{below.__traceback__.tb_next.tb_lineno}, in <lambda> (")  # type: ignore
    assert not raised_by_them(KeyError("rows"))
    assert said(ValueError()) == "ValueError"
    monkeypatch.chdir(HERE.parents[1])
    assert said(inside).startswith(f"{HERE.parent.name}/{HERE.name}:{line}, in fails")


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    file = str(tmp_path / "mine.py")
    assert said(raised(lambda: compile("x = 1\n  y = (\n", file, "exec"))) == f"{file}:2: unexpected indent: y = ("
    assert said(SyntaxError("odd", (file, 3, 1, None))) == f"{file}:3: odd"
    assert said(SyntaxError("odd")) == "SyntaxError: odd"


def test_what_users_code_raises_begins_with_what_was_run() -> None:
    with pytest.raises(UsersCodeError) as refused, users_code("M.reference"):
        raise SystemExit(3)
    assert str(refused.value).startswith(f"M.reference: {HERE.name}:" if Path.cwd() == HERE.parent else "M.reference: ")
    assert str(refused.value).endswith("(raise SystemExit(3)): it ends the process, with status 3")
    for passed_on in (UsersCodeError("said"), KeyError("rows")):
        with pytest.raises(type(passed_on)) as again, users_code("M.reference", KeyError):
            raise passed_on
        assert again.value is passed_on
    with pytest.raises(UsersCodeError) as refused, users_code("M.reference"):
        raise KeyError("rows")
    assert str(refused.value).endswith("KeyError: 'rows'")
