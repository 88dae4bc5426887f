"""The benchmark that compares candidates of two checkouts: what it calls equal, and what it calls different."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.benchmarks import frozen_candidates as frozen
from tinygpu.machines.elementwise import Axpby


@pytest.fixture
def one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "SHIPPED", {"axpby": "tinygpu.machines.elementwise:Axpby"})
    monkeypatch.setattr(frozen, "TARGETS", ("a100",))


def test_a_corpus_is_equal_to_itself(
    one_machine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen.freeze(tmp_path / "corpus.gz", 3, 0)
    assert capsys.readouterr().out.startswith("axpby on a100: 3 candidates\n")
    assert frozen.compare(tmp_path / "corpus.gz", 3) == 0
    monkeypatch.setattr(frozen, "COMMENT", frozen.re.compile("ld.global"))
    assert frozen.compare(tmp_path / "corpus.gz", 1) == 1
    assert "PTX: 3 differ" in capsys.readouterr().out


def test_every_aspect_that_differs_is_named() -> None:
    listed = list(frozen.drawn("axpby", Axpby, "a100", 3, 0))
    inside = next(f for f in listed if not f.out)
    assert inside.counts
    assert (len(inside.kernel), inside.seconds > 0) == (2, True)
    assert list(inside.differences(frozen.frozen(json.loads(json.dumps(asdict(inside)))))) == []
    (name, number), *_ = inside.counts.items()
    changed = {
        "membership": replace(inside, out=("no",)),
        "PTX": replace(inside, kernel=("0", inside.kernel[1])),
        "launch": replace(inside, kernel=(inside.kernel[0], "0")),
        f"count of {name}": replace(inside, counts=inside.counts | {name: number + 1}),
        "count of new": replace(inside, counts=inside.counts | {"new": 1.0}),
        "prediction": replace(inside, seconds=inside.seconds * (1 + 1e-15)),
    }
    for aspect, other in changed.items():
        assert list(inside.differences(other)) == [aspect]
    refused = replace(inside, kernel=("refused: it",))
    assert list(inside.differences(refused)) == ["PTX"]
    assert list(refused.differences(refused)) == []
    outside = replace(inside, out=("n is 3",), kernel=(), counts=None)
    assert list(outside.differences(replace(outside, out=("n is 4",)))) == ["explanation"]
