"""Reading what is typed: sizes, per-tensor settings, points."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from tinygpu.api.problems import Asked


def asked(
    shape: str,
    dtype: Iterable[str],
    major: Iterable[str],
    ld: Iterable[str],
    align: Iterable[str],
    option: Iterable[str],
) -> Asked:
    """What the user said of the problem."""
    pitches = _numbers("--ld", ld)
    return Asked(
        dims=_numbers("--shape", shape.split(",")),
        dtypes=_dtypes(dtype),
        majors=_pairs("--major", major),
        lds={name: value for name, value in pitches.items() if "." not in name},
        aligns=_numbers("--align", align),
        options=dict(_pairs("--option", option)),
        strides=_strides({name: value for name, value in pitches.items() if "." in name}),
    )


def point(words: Iterable[str]) -> dict[str, int | str]:
    """name=value words as a point; whole numbers become numbers."""
    return {k: int(v) if v.isdigit() else v for k, v in _pairs("the point", words).items()}


def tiers(text: str) -> tuple[int, ...]:
    """1,2,5 as numbers; nothing stands for all."""
    try:
        return tuple(int(word) for word in text.split(",") if word)
    except ValueError:
        raise typer.BadParameter(f"--tiers takes numbers separated by commas, not {text!r}") from None


def _strides(given: dict[str, int]) -> dict[str, dict[int, int]]:
    """x.0=65536 as the stride of x along axis 0."""
    out: dict[str, dict[int, int]] = {}
    for word, value in given.items():
        name, _, axis = word.partition(".")
        if not axis.isdigit():
            raise typer.BadParameter(f"--stride takes TENSOR.AXIS=elements, as x.0=65536, not {word}={value}")
        out.setdefault(name, {})[int(axis)] = value
    return out


def _dtypes(words: Iterable[str]) -> dict[str, str]:
    out = {}
    for word in words:
        for part in word.split(","):
            name, _, value = part.rpartition("=")
            out[name or "*"] = value
    return out


def _pairs(where: str, words: Iterable[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for word in words:
        for part in word.split(","):
            name, equals, value = part.partition("=")
            if not equals or not name or not value:
                raise typer.BadParameter(f"{where} takes name=value, not {part!r}")
            if name in out:
                raise typer.BadParameter(f"{where} gives {name} twice")
            out[name] = value
    return out


def _numbers(where: str, words: Iterable[str]) -> dict[str, int]:
    out = {}
    for name, value in _pairs(where, words).items():
        try:
            out[name] = int(value.replace("_", ""))
        except ValueError:
            raise typer.BadParameter(f"{where} takes whole numbers: {name}={value!r} is none") from None
    return out
