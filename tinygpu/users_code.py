"""Code that is the user's: where it raised, in a sentence, with their file and line instead of our stack.

A machine's module, its `program`, its `reference` and an instruction's `meaning` are Python of the user's. What they
raise is an answer to them: the line of theirs that was running, what it says, and Python's own words.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from tinygpu.habits import hint

# The standard library and what pip installed: never where a mistake of the user's is.
LIBRARIES = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})
_PLACE = re.compile(r"\.py:\d+")
INSTALLED = {"site-packages", "dist-packages"}  # wherever else these lie
# The folder of this package, and of the rooms that are mapped into it where the install is editable.
PACKAGE = Path(__file__).resolve().parents[0]
ROOMS = (PACKAGE, PACKAGE.parent / "ptx", PACKAGE.parent / "search")


class UsersCodeError(ValueError):
    """Code of the user's raised something, or gave what it may not give; the sentence says where and what."""


@contextmanager
def users_code(what: str, *passed_on: type[Exception]) -> Iterator[None]:
    """Runs code of the user's; what it raises becomes a UsersCodeError that begins with `what`.

    passed_on  exceptions that are sentences already

    >>> with users_code("Twice.reference"):
    ...     [][1]
    Traceback (most recent call last):
    tinygpu.users_code.UsersCodeError: Twice.reference: IndexError: list index out of range
    """
    try:
        yield
    except SystemExit as left:
        raise UsersCodeError(f"{what}: {where(left)}it ends the process, with status {left.code!r}") from left
    except Exception as error:
        if isinstance(error, (UsersCodeError, *passed_on)):
            raise
        raise UsersCodeError(f"{what}: {said(error)}") from error


def said(error: Exception) -> str:
    """An exception of the user's code in a sentence: place, kind and message, and the line as they wrote it.

    >>> said(KeyError("rows"))
    "KeyError: 'rows'"
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        line = f": {error.text.strip()}" if error.text else ""
        return f"{_name(error.filename)}:{error.lineno}: {error.msg}{line}"
    kind = type(error).__name__
    here = f"; {known}" if (known := hint(str(error)) or _unseen(error)) else ""
    return f"{where(error)}{kind}: {error}{here}" if str(error) else f"{where(error)}{kind}"


def _unseen(error: Exception) -> str:
    """Why a generator or a comprehension in a class body lacks a name that this has; "" where that is not why."""
    if not isinstance(error, NameError) or error.__traceback__ is None:
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-2:]
    if not any(error.name in frame.f_locals and "__qualname__" in frame.f_locals for frame in frames):
        return ""
    return f"a generator or a comprehension does not see {error.name} of the class around it: write out what it makes"


def where(error: BaseException) -> str:
    """`file.py:12, in reference (return x / 0): `, the last line of the user's that was running; "" where none was."""
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if is_theirs(frame.filename)]
    if not theirs:
        return ""
    last = theirs[-1]
    inside = "" if last.name == "<module>" else f", in {last.name}"
    return f"{_name(last.filename)}:{last.lineno}{inside}{f' ({last.line})' if last.line else ''}: "


E = TypeVar("E", bound=Exception)
A = TypeVar("A")


def answer(
    method: Callable[..., A], *given: Any, wanted: str, fits: Callable[[Any], bool], what: str = "", **named: Any
) -> A:
    """What a method gives. A UsersCodeError where it raises or gives something else, and it is the user's own.

    wanted  what it should give, in words
    fits    whether something is that
    what    what the method is called; its own name otherwise
    """
    if not _of_theirs(method):
        return method(*given, **named)
    what = what or method.__qualname__
    try:
        with users_code(what):
            found = method(*given, **named)
    except UsersCodeError as error:
        raise at(error, "" if place_of(error) else written_at(method)) from error.__cause__
    if not fits(found):
        shown = repr(found) if len(repr(found)) < 80 else f"{found!r:.76} ..."
        raise at(UsersCodeError(f"{what} gives {shown}: it must give {wanted}"), written_at(method))
    return found


def written_at(function: Any) -> str:
    """`file.py:12`, where a function of the user's begins; "" for others."""
    code = _code_of(function)
    return f"{_name(code.co_filename)}:{code.co_firstlineno}" if code and is_theirs(code.co_filename) else ""


def _of_theirs(function: Any) -> bool:
    code = _code_of(function)
    return code is not None and is_theirs(code.co_filename)


def _code_of(function: Any) -> CodeType | None:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def at(error: E, place: str) -> E:
    """The error with the place in the user's code that it is about, where no line of theirs was running.

    place  "file.py:12"; "" where it is not known
    """
    if place and not getattr(error, "place", ""):
        error.place = place  # type: ignore[attr-defined]
        error.add_note(f"at {place}")
    return error


def place_of(error: BaseException) -> str:
    """`file.py:12`, the line of the user's that an error is about; "" where it is about none.

    It is what was said with `at`, or else the last line of theirs that was running, also where the error was raised
    again on its way.
    """
    chain = [error]
    while (behind := chain[-1].__cause__ or chain[-1].__context__) is not None and behind not in chain:
        chain.append(behind)
    for one in chain:
        if place := getattr(one, "place", ""):
            return str(place)
    for one in reversed(chain):
        theirs = [frame for frame in traceback.extract_tb(one.__traceback__) if is_theirs(frame.filename)]
        if theirs:
            return f"{_name(theirs[-1].filename)}:{theirs[-1].lineno}"
    return ""


def with_place(error: BaseException) -> str:
    """The sentence of an error behind the place in the user's code that it is about, unless it says one already."""
    place, sentence = place_of(error), str(error)
    return sentence if not place or _PLACE.search(sentence) else f"{place}: {sentence}"


def line_under_way() -> str:
    """`file.py:12`, the line of the user's that is running; "" where none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_theirs(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{_name(frame.f_code.co_filename)}:{frame.f_lineno}"


def raised_by_them(error: BaseException) -> bool:
    """Whether the user's own line raised, and nothing of ours that it called."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and is_theirs(frames[-1].filename)


@cache
def is_theirs(filename: str) -> bool:
    """Whether a file holds the user's code; a machine that ships counts, since it is written as theirs are."""
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    libraries = any(path.is_relative_to(library) for library in LIBRARIES) or INSTALLED & set(path.parts)
    if path.is_relative_to(PACKAGE / "machines"):
        return True
    return not libraries and not any(path.is_relative_to(room) for room in ROOMS)


def _name(filename: str) -> str:
    """A file as the user would name it: from the current folder, where it lies below it."""
    return _below(filename, os.getcwd())


@lru_cache(maxsize=256)
def _below(filename: str, folder: str) -> str:
    path = Path(filename)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else filename
