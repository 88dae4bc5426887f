"""What other installed packages offer: machines, instructions, devices and strategies, by entry points.

A package of somebody else says in its pyproject.toml

    [project.entry-points."tinygpu.machines"]
    row_sum = "row_kit.machines:RowSum"

and `tinygpu tune row_sum` and `tg.space("row_sum", ...)` find it. Nothing of a package is imported before its name is
asked for. A name that two packages offer, ours included, stands for neither: `DISTRIBUTION:NAME` says which is meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from tinygpu.users_code import said

GROUPS = ("machines", "instructions", "devices", "strategies")
OURS = "tinygpu"
T = TypeVar("T")


class ExtensionError(ValueError):
    """A name that packages offer cannot be used; the sentence names them."""


class Clash(ExtensionError):
    """A name stands for several things."""


@dataclass(frozen=True, slots=True)
class Extension:
    """One thing that a package offers.

    group         "machines", "instructions", "devices" or "strategies"
    name          as it is asked for
    distribution  the package, as pip knows it
    version       of the package
    """

    group: str
    name: str
    distribution: str
    version: str
    entry: EntryPoint

    @property
    def whose(self) -> str:
        return f"{self.distribution} {self.version}"

    def load(self, wanted: type[T], what: str) -> T:
        """The thing itself; raises ExtensionError where it cannot be imported, or is not what it should be.

        what  "a Device", for the sentence
        """
        found = self.imported()
        if not isinstance(found, wanted):
            raise self.wrong(found, what)
        return found

    def imported(self) -> Any:
        """Whatever the entry point names. Raises ExtensionError."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            how = said(error) if isinstance(error, Exception) else f"it ends the process, with status {error.code!r}"
            raise ExtensionError(f"{self} cannot be loaded from {self.entry.value}: {how}") from error

    def wrong(self, found: object, what: str) -> ExtensionError:
        """That it is something else than it should be."""
        return ExtensionError(f"{self} is not {what}: {self.entry.value} is {found!r}")

    def __str__(self) -> str:
        return f"{self.name!r} of {self.whose} (tinygpu.{self.group})"


def key(name: str) -> str:
    """A name as it is compared: in small letters, `-` as `_`."""
    return re.sub(r"[-.\s]+", "_", name.strip().lower())


@cache
def extensions(group: str) -> tuple[Extension, ...]:
    """Everything that installed packages offer in a group, by name and package. Imports none of it."""
    found = [
        Extension(group, entry.name, entry.dist.name, entry.dist.version, entry)
        for entry in entry_points(group=f"tinygpu.{group}")
        if entry.dist is not None
    ]
    return tuple(sorted(set(found), key=lambda e: (key(e.name), key(e.distribution))))


def extension(group: str, name: str, ours: Collection[str] = ()) -> Extension | None:
    """What a name stands for among what packages offer; None where it is ours, or nobody's.

    name  as it was asked for: "row_sum", "Row-Sum", or with its package, "row-kit:row_sum"
    ours  names of our own

    Raises Clash for a name that stands for two things, and ExtensionError for a package that does not offer it.
    """
    package, _, plain = name.rpartition(":")
    named = [e for e in extensions(group) if key(e.name) == key(plain)]
    if package:
        named = [e for e in named if key(e.distribution) == key(package)]
        if not named and key(package) != OURS:
            raise ExtensionError(f"no package {package!r} offers {plain!r} among its tinygpu.{group}")
    owners = [e.whose for e in named]
    if len(set(owners)) < len(owners):
        twice = " and ".join(repr(e.name) for e in named if owners.count(e.whose) > 1)
        raise Clash(f"{plain!r} is offered twice by {max(owners, key=owners.count)}, as {twice}")
    if not package and key(plain) in set(map(key, ours)):
        owners.insert(0, OURS)
    if len(owners) > 1:
        raise Clash(f"{plain!r} is offered by {' and '.join(owners)}; say which, as {named[0].distribution}:{plain}")
    return named[0] if named else None


def without_ours(name: str) -> str:
    """A name of ours that was asked for with its package: "tinygpu:matmul" is "matmul"."""
    package, _, plain = name.rpartition(":")
    return plain if key(package) == OURS else name
