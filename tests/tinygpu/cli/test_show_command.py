"""`tinygpu show`: what is proved of the hand-overs of a machine's kernels, or of one candidate's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app

CLAIMS = (
    "no slot is overwritten before it was read; no slot is read before it was filled; no phase is missed; "
    "no wait lasts for ever"
)
ONE = "one candidate is named by --shape and --device, with the rest of its problem and name=value"
SKINNY = ("show", "matmul_skinny", "--shape", "m=8,n=256,k=256", "--device", "h100", "product=mma.sync", "stages=4")


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_machine_without_pipelines_hands_nothing_over() -> None:
    *_, candidate, last = shown("show", "axpby").rstrip().splitlines()
    assert candidate.startswith("hand-overs of Axpby for n=256 ")
    assert last == "there is no pipeline"


def test_a_candidate_is_found_where_dims_are_listed_and_follow_from_others(tmp_path: Path) -> None:
    lines = ["from tinygpu.language import *", "from tinygpu.ptx import isa", "", "", "class Doubled(Machine):"]
    body = """
    n, k, n2 = Dim(), Dim(3), Dim(follows=lambda n: 2 * n)
    x, y = Input("f32", n, k), Output("f32", n2, k)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p):
        who = blocked((32, 3), threads=32, across=1)
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, 0, shape=(32, 3)), who)
            p.store(self.st, self.y.tile(i, 0, shape=(32, 3)), x)
            p.store(self.st, self.y.tile(i + self.n, 0, shape=(32, 3)), x)

    @staticmethod
    def reference(x):
        return np.concatenate([x, x])
"""
    (tmp_path / "doubled.py").write_text("import numpy as np\n" + "\n".join(lines) + body)
    *_, candidate, last = shown("show", f"{tmp_path / 'doubled.py'}:Doubled").rstrip().splitlines()
    assert candidate.startswith("hand-overs of Doubled for n=256,k=3,n2=512 ")
    assert last == "there is no pipeline"


@pytest.mark.end_to_end
def test_a_candidate_is_shown_with_its_certificate() -> None:
    text = shown(*SKINNY)
    assert "hand-overs of MatmulSkinny for m=8,n=256,k=256 " in text
    assert f"proved: ring of a, b (for all stages, rounds, tiles and CTAs): {CLAIMS}\n" in text
    assert re.search(r"^assumed: mbarriers do what the PTX ISA says, ", text, re.MULTILINE)


@pytest.mark.end_to_end
def test_certificates_are_data_as_well() -> None:
    (data,) = [json.loads(shown("show", "matmul_skinny", "--json"))]
    (ring,) = data["handovers"]["pipelines"]
    assert (ring["pipeline"], ring["verdict"], ring["round"], ring["open"]) == ("ring", "proved", None, [])
    assert "; ".join(ring["claims"]) == CLAIMS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--device", "h100"), ONE),
        (("stages=4",), ONE),
        (("--shape", "m=8,n=8,k=8", "stages=4"), ONE),
        (("--dtype", "f16"), ONE),
    ],
)
def test_half_a_candidate_is_refused(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["show", "matmul_skinny", *words], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert sentence in " ".join(re.sub(r"[│╭╰─╮╯]", " ", result.output).split())
