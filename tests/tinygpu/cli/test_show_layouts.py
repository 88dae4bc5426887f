"""`tinygpu show --layouts`: what it prints, as text and as JSON, and what it refuses, in full sentences."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app
from tinygpu.layouts import Layout

CANDIDATE = ["--shape", "m=37,n=101", "--device", "a100", "warps=2", "rows=2", "vector=1", "across=64"]


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, ["show", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_candidate_is_shown_with_numbers_and_pictures() -> None:
    text = shown("bias_relu", "--layouts", *CANDIDATE)
    assert text.startswith(
        "BiasRelu for m=37,n=101 x:f16 bias:f16 y:f16 on A100-SXM4-80GB: warps=2 vector=1 rows=2 across=64\n\n"
        "distributions: (threads, values) -> coordinates of the tile, first modes fastest\n"
        "  %v1 = ld x[2*tile0:+2, 64*tile1:+64]\n"
        "    v1: f16[2 x 64]  (64,2):(1@1,1@0)\n"
        "  %v2 = cvt.f32.f16 %v1\n"
        "    v2: f32[2 x 64]  (64,2):(1@1,1@0)\n"
        "    v1: f16[2 x 64]  (64,2):(1@1,1@0)\n"
    )
    assert (
        "\nwho holds what of v1, v2, v5, v6, v7 (T3:V1+1 is value 1 of thread 3, and one more holder)\n"
        "  (64,2):(1@1,1@0) in 2 x 64; the first 16 of 64 columns\n"
    ) in text
    cells = " ".join(f"T{thread}:V1".rjust(5 + (thread > 9)) for thread in range(16))
    assert text.count(f"\n  1 {cells}\n") == 1


def test_without_a_problem_layouts_are_symbolic_and_of_the_structure_that_is_chosen() -> None:
    text = shown("matmul_ampere", "--layouts", "store=staged", "fragment_a=ldmatrix")
    assert text.startswith(
        "MatmulAmpere, the first of 8 structures: copy_a=cp.async copy_b=cp.async fragment_a=ldmatrix "
        "fragment_b=ldmatrix store=staged\n"
    )
    assert "\n  %v7 = fragment_a ring.a[0:+bm, 16*u6:+16]\n    v7: f16[bm x 16]  ((4,8,warps_m,warps_n),(2,2,2," in text
    assert (
        "\n  ring.a: f16[bm x bk] in SMEM  (bm,bk,stages):(2*bk + 2*pad,2,bm*(2*bk + 2*pad))\n"
        "    stages x (bm*(2*bk + 2*pad)) B, rows 2*bk + 2*pad B apart, swizzle layout_a, solved for each candidate\n"
    ) in text
    assert text.endswith("pictures are of candidates: give --shape and --device, and name=value for parameters\n")


def test_swizzles_of_the_hardware_are_said() -> None:
    text = shown("matmul_hopper", "--layouts")
    assert "rows cut to the width of the swizzle, swizzle of the hardware, swizzle B wide\n" in text


def test_json_says_the_same_and_its_layouts_can_be_read() -> None:
    text, found = (
        shown("bias_relu", "--layouts", *CANDIDATE),
        json.loads(shown("bias_relu", "--layouts", *CANDIDATE, "--json")),
    )
    assert found["machine"] == "BiasRelu"
    assert found["candidate"] == {"warps": 2, "vector": 1, "rows": 2, "across": 64}
    assert found["buffers"] == []
    for d in found["distributions"]:
        assert f"    {d['tile']}: {d['dtype']}[{d['shape']}]  {d['layout']}\n" in text
        assert str(Layout.parse(d["layout"])) == d["layout"]
        assert d["picture"].startswith(f"{d['layout']} in ")
    symbolic = json.loads(shown("matmul_ampere", "--layouts", "--json"))
    assert symbolic["structure"]["copy_a"] == "cp.async"
    assert [b["buffer"] for b in symbolic["buffers"]] == ["ring.a", "ring.b"]
    assert symbolic["buffers"][0] == {
        "buffer": "ring.a",
        "pipeline": "ring",
        "memory": "SMEM",
        "dtype": "f16",
        "shape": "bm x bk",
        "stages": "stages",
        "pitch_bytes": "2*bk + 2*pad",
        "swizzle_bytes": None,
        "swizzle": "layout_a, solved for each candidate",
        "layout": "(bm,bk,stages):(2*bk + 2*pad,2,bm*(2*bk + 2*pad))",
    }
    assert not any("picture" in part for part in (*symbolic["buffers"], *symbolic["distributions"]))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["bias_relu", "--layouts", "warps=2"],
            "warps=2 is a number of a candidate, and layouts with numbers are those of a candidate for a problem on a "
            "device: give --shape and --device too",
        ),
        (["bias_relu", "--layouts", "store=direct"], "BiasRelu has no choice 'store'; it has no choices"),
        (
            ["matmul_ampere", "--layouts", "foo=2"],
            "MatmulAmpere has no choice 'foo'; it has copy_a, copy_b, fragment_a, fragment_b, store",
        ),
        (["matmul_ampere", "--layouts", "store=foo"], "store of MatmulAmpere is direct or staged, not 'foo'"),
    ],
)
def test_what_is_no_structure_is_refused_in_a_sentence(words: list[str], sentence: str) -> None:
    result: Any = CliRunner().invoke(app, ["show", *words])
    assert result.exit_code == 1
    assert str(result.exception) == sentence
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["warps=2"], "one candidate is named by --shape and --device, with the rest of its problem and name=value"),
        (
            ["--layouts", "--shape", "m=3,n=4"],
            "layouts with numbers are for a problem on a device: --shape needs --device too",
        ),
        (
            ["--layouts", "--device", "a100"],
            "layouts with numbers are for a problem on a device: --device needs --shape too",
        ),
        (
            ["--layouts", "--dtype", "f16"],
            "what is said of a problem's tensors needs the problem: give --shape and --device too",
        ),
    ],
)
def test_what_does_not_go_together_is_a_mistake_of_usage(words: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, ["show", "bias_relu", *words])
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert f"Invalid value: {sentence}" in said
