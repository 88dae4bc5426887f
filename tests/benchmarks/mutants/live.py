"""An edit of functions that are imported already: their code is exchanged, and nothing is imported again."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType

# A function by the file, the qualified name and the first line of its code.
Place = tuple[str, str, int]


def functions() -> dict[Place, list[FunctionType]]:
    """Every function that is alive, with the closures of one code together."""
    gc.unfreeze()  # what is frozen is listed nowhere, and the suite freezes all that it has collected
    found: dict[Place, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType):
            found.setdefault(_place(thing.__code__), []).append(thing)
    return found


def exchanges(
    alive: dict[Place, list[FunctionType]], path: str, before: str, after: str
) -> list[tuple[FunctionType, CodeType]] | None:
    """The functions of a module that an edit changes, each with its new code.

    None where the edit changes more than functions that are alive: then the module has to be imported with it.
    """
    old, new = (compile(text, os.path.realpath(path), "exec", dont_inherit=True) for text in (before, after))
    found: list[tuple[FunctionType, CodeType]] = []
    for was, code in _changed(old, new):
        if code is None:
            return None
        for function in alive.get(_place(was), []):
            if function.__code__.co_freevars != code.co_freevars:
                return None
            found.append((function, code))
    return found or None


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType | None]]:
    """What differs, function by function, each with its new code; None for what runs on import."""
    if not _same(old, new, deep=True):
        is_function = bool(old.co_flags & CO_OPTIMIZED)
        if is_function or not _same(old, new, deep=False):
            yield old, new if is_function else None
        inside = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
        if [c.co_name for c in inside[0]] == [c.co_name for c in inside[1]]:
            for was, code in zip(*inside, strict=True):
                yield from _changed(was, code)


def _same(a: CodeType, b: CodeType, deep: bool) -> bool:
    """Whether two pieces of code do the same; not deep: but for the functions inside them."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars, a.co_cellvars) != (
        b.co_code,
        b.co_names,
        b.co_varnames,
        b.co_freevars,
        b.co_cellvars,
    ) or len(a.co_consts) != len(b.co_consts):
        return False
    for one, other in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(one, CodeType) and isinstance(other, CodeType):
            if deep and not _same(one, other, deep):
                return False
        elif (type(one), repr(one)) != (type(other), repr(other)):
            return False
    return True


def _place(code: CodeType) -> Place:
    return os.path.realpath(code.co_filename), code.co_qualname, code.co_firstlineno
