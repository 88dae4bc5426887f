"""Files that are there whole or not at all, and what is left of a step that was ended in the middle."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["done", "failed", "skipped", "running"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What became of a step.

    status   "running" where the call itself was ended in the middle of it
    reason   why it failed or was skipped; "" where it is done
    seconds  that it took, of the `limit_s` that it had
    result   what it found, as far as it came
    """

    step: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    limit_s: float = 0.0
    result: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StepRecord:
        return StepRecord(**data)


def write_text(path: Path, text: str) -> None:
    """Replaces a file in one go: who reads it, or kills the writer, finds the old text or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def plain(value: Any) -> Any:
    """What JSON can say: a number that is none becomes null.

    >>> plain({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def json_text(data: Any) -> str:
    return json.dumps(plain(data), indent=1, allow_nan=False) + "\n"


def write_json(path: Path, data: Any) -> None:
    write_text(path, json_text(data))


def read_json(path: Path) -> dict[str, Any]:
    """An object of JSON; {} where there is no such file."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no object of JSON")
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Lines of JSON; a last one that was cut short is left out."""
    if not path.exists():
        return []
    data = path.read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


class Lines:
    """A file of JSON lines, each on disk as soon as it is written."""

    def __init__(self, path: Path) -> None:
        kept = 0
        if path.exists():
            kept = path.read_bytes().rfind(b"\n") + 1
        self._file = open(path, "ab")  # noqa: SIM115  closed by `close`
        self._file.truncate(kept)

    def write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(plain(line)).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
