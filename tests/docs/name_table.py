"""The page of names: every name that a user writes, with what it means, from the docstrings.

    python tests/docs/name_table.py > docs/names.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

import tinygpu
import tinygpu.language as language
from tinygpu.cli.app import app
from tinygpu.language.bound_tensor import BoundTensor
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.ring import Ring
from tinygpu.language.tracing.tracer import Tracer

HEAD = """\
# Names

Every name that is written to use tinyGPU, and what it means: one thing each. Where two doors have one name, they do one
thing. The page is written by `python tests/docs/name_table.py`, from the docstrings; a test holds it to them. The
instructions have [cards](instructions/README.md), the words of the documents stand in
[architecture.md](architecture.md#words).
"""
# What a slot, a tensor's window or a register tile is asked for; the verbs of `p` are all public ones of the tracer.
PARTS = {"ring": Ring, "self.x": BoundTensor, "tile": Tile}
OF_A_TILE = ("permute", "squeeze", "unsqueeze", "window", "T")


# Names that stand for a value, which has no docstring of its own.
VALUES = {
    "GMEM": "Global memory: tensors.",
    "L2": "The cache of the whole GPU.",
    "L1": "The cache of an SM.",
    "SMEM": "Shared memory of a CTA, in 32 banks of 4 bytes.",
    "TMEM": "Tensor memory of an SM: 128 lanes by 512 columns of 32 bits.",
    "RMEM": "Registers of a thread.",
    "HEURISTICS": "The costs that the predictor charges every machine for, by name.",
    "Fragment": "Who holds what of a matrix instruction's operand: a Layout from (lane, value) to coordinates.",
}


@dataclass(frozen=True, slots=True)
class Name:
    """One name at one door.

    written  as a user writes it: `tg.tune`, `p.load`, `tinygpu tune`
    meaning  the first sentence of its docstring
    """

    name: str
    written: str
    meaning: str


def doors() -> dict[str, tuple[Name, ...]]:
    """Every door with its names."""
    return {
        "The front door": tuple(_front()),
        "Commands": tuple(_commands()),
        "Declarations, partitions, expressions": tuple(_language()),
        "Verbs": tuple(_verbs()),
    }


def _front() -> Iterator[Name]:
    for name in tinygpu.__all__:
        yield Name(name, f"`tg.{name}`", first_sentence(getattr(tinygpu, name)))


def _commands() -> Iterator[Name]:
    for command in typer.main.get_group(app).commands.values():
        yield Name(str(command.name), f"`tinygpu {command.name}`", _sentence(command.help or ""))


def _language() -> Iterator[Name]:
    for name in language.__all__:
        yield Name(name, f"`{name}`", VALUES.get(name) or first_sentence(getattr(language, name)))


def _verbs() -> Iterator[Name]:
    for name, function in inspect.getmembers(Tracer, inspect.isfunction):
        if not name.startswith("_") and hasattr(function, "__wrapped__") and name not in ("nested", "deeper"):
            yield Name(name, f"`p.{name}`", first_sentence(function))
    for owner, kind in PARTS.items():
        for name, member in vars(kind).items():
            listed = name in OF_A_TILE if kind is Tile else callable(member)
            if not name.startswith("_") and listed:
                yield Name(name, f"`{owner}.{name}`", first_sentence(member))


def first_sentence(thing: Any) -> str:
    """What a docstring begins with."""
    return _sentence(inspect.getdoc(thing) or "")


def _sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def page() -> str:
    lines = [HEAD]
    for door, names in doors().items():
        lines += [f"## {door}", "", "| name | meaning |", "| --- | --- |"]
        lines += [f"| {n.written} | {n.meaning} |" for n in sorted(names, key=lambda n: n.written.lower())]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
