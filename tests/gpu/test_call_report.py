"""The readable page, from made-up results: every table, what is left out and why, and what cannot be told."""

from copy import deepcopy

import pytest
from gpu_call.dense import rank_correlation, summary
from gpu_call.report import dense, heading, means, report, speedup, state, step_table, stream_table, table, versus
from hypothesis import given
from hypothesis import strategies as st


def spread(median: float) -> dict[str, float]:
    return {"median": median, "low": median, "high": median, "least": median, "count": 20}


def row(case: str, m: int, ours: float | None, model: str = "M", role: str = "matmuls") -> dict[str, object]:
    """A problem of m x 1000 x 1000 in which cuBLAS takes 2 us and Triton 4 us."""
    contenders = {"PyTorch": {"cold": spread(2e-6), "warm": spread(1e-6), "what": "1 kernel"}}
    contenders["Triton"] = {"cold": spread(4e-6), "warm": None, "what": "t"}
    ratios = {}
    if ours is not None:
        contenders["tinyGPU"] = {"cold": spread(ours), "warm": spread(ours / 2), "what": "k"}
        for name, seconds in (("PyTorch", 2e-6), ("Triton", 4e-6)):
            r = ours / seconds
            ratios[name] = {"median": r, "low": r - 0.01, "high": r + 0.01, "pairs": 20, "verdict": "faster"}
    return {
        "role": role, "case": case, "machine": "matmul", "facts": {"model": model, "layer": "o"},
        "problem": {"dims": {"m": m, "n": 1000, "k": 1000}}, "bytes": 4000, "torch_right": True, "noise": 0.002,
        "contenders": contenders, "ratios": ratios, "tried": {"failed": {}}, "sets": 2,
        "ours": None if ours is None else {"machine": "MatmulHopper", "point": {"bm": 64}},
    }  # fmt: skip


MACHINE = {
    "date": "2026-01-02T03:04:05+00:00", "kit": "2026-01-01, commit abc", "rehearsal": False, "python": "3.12.3",
    "gpu": {"name": "NVIDIA H200", "sms": 132, "l2_bytes": 60 << 20, "driver": "13.0"},
    "packages": {"torch": "2.11", "jax": None}, "nvidia_smi": "NVIDIA H200, 580", "kernel": "6.1",
    "clocks": {"sm_mhz": 1980, "memory_mhz": 3201, "watts": 120.4, "celsius": 40, "held_back": ["power cap"]},
}  # fmt: skip


def test_the_heading_says_where_when_and_at_which_clocks() -> None:
    text = heading(MACHINE)
    assert text.startswith("# Results on NVIDIA H200\n")
    assert "| GPU | NVIDIA H200, 132 SMs, 60 MiB of L2 |" in text
    assert "| packages | torch 2.11 |" in text
    assert "| clocks at the start | SM 1980 MHz, memory 3201 MHz, 120 W, 40 C, held back by power cap |" in text
    assert heading({**MACHINE, "rehearsal": True}).startswith("# Results without a GPU: a rehearsal\n")
    assert heading({}).startswith("# Results\n")
    assert state({}) == ""


def test_steps_are_listed_with_their_reasons() -> None:
    text = step_table([
        {"step": "a", "status": "failed", "reason": "killed | after 9 s", "seconds": 9.2, "limit_s": 9.0, "result": {}}
    ])  # fmt: skip
    assert text.endswith("| a | failed | 9 of 9 s | killed \\| after 9 s |")


def test_the_table_of_matmuls_has_rates_ratios_and_kernels() -> None:
    how = {"rounds": 20, "warm_rounds": 8}
    found = {
        "rows": [row("p", 1000, 1e-6), {**row("q", 1000, None), "torch_right": False, "torch_error": 1.5,
                                        "tried": {"failed": {"k1": "its result is wrong"}}}],
        "protocol": how, "failed": {"r": "out of memory"}, "skipped_kernels": {"p": ["k7"]}, "left": ["s"],
    }  # fmt: skip
    text = report({"steps": [{"step": "side_by_side", "status": "done", "reason": "", "seconds": 1, "limit_s": 2,
                              "result": found}]})  # fmt: skip
    assert (
        "| p | 2000.0 | 1000.0 | 500.0 | 1.0 | 0.500 [0.490, 0.510] faster | 0.250 [0.240, 0.260] faster | 0.5 / 1.0 | "
        "MatmulHopper `bm=64` |"
    ) in text
    assert "| q |  | 1000.0 (error: 1.5 of what rounding explains) | 500.0 |  |  |  | 1.0 |  |" in text
    for note in (
        "- r: out of memory", "- p: kernels left out: k7", "- not reached: s", "- q, k1: its result is wrong",
    ):  # fmt: skip
        assert note in text


def test_means_are_over_shapes_of_models_alone() -> None:
    rows = [row("a", 1, 1e-6), row("b", 1, 4e-6), row("c", 16, 1e-6), row("square", 16, 9e-6, model="")]
    text = means(rows)
    assert "| m = 1 | 1.000 (of 2) | 2.000 (of 2) |" in text
    assert "| m = 16 | 2.000 (of 1) | 4.000 (of 1) |" in text
    assert "| all shapes of models | 1.260 (of 3) | 2.520 (of 3) |" in text


@given(st.lists(st.floats(1e-7, 1e-3), min_size=1, max_size=20))
def test_the_mean_of_speedups_is_geometric(times: list[float]) -> None:
    rows = [row(str(n), 1, t) for n, t in enumerate(times)]
    found = speedup(rows, "PyTorch")
    assert found is not None
    mean, count = found
    assert count == len(times)
    product = 1.0
    for t in times:
        product *= (2e-6 / t) ** (1 / len(times))
    assert mean == pytest.approx(product, rel=1e-9)


def test_without_ratios_there_is_no_mean() -> None:
    assert speedup([row("a", 1, None)], "PyTorch") is None
    assert versus(row("a", 1, None), "PyTorch") == ""


def test_bandwidths_stand_beside_the_copy() -> None:
    made = row("axpby", 1, 5e-9, role="streams")
    made["contenders"] = {**made["contenders"], "copy": {"cold": spread(4e-9), "warm": None, "what": ""}}  # type: ignore[dict-item]
    line = stream_table([made]).splitlines()[-1]
    assert line.startswith("| axpby | 800 | 2 | 1,000 | 80.0 % | ")


def line(name: str, seconds: float, predicted: float) -> dict[str, object]:
    return {
        "kernel": name, "status": "measured", "machine": "M", "point": {"x": name}, "cold": spread(seconds),
        "predicted_s": predicted, "registers": 3, "digest": "d",
    }  # fmt: skip


def test_a_dense_sample_is_summed_up(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import json

    lines = [
        {"problems": [{"dims": {"m": 10, "n": 10, "k": 10}}]}, {"noise": 0.003},
        line("k0", 2e-9, 1e-9), line("k1", 1e-9, 2e-9), line("k2", 4e-9, 3e-9),
        {"kernel": "k3", "status": "failed", "point": {}, "failure": {"kind": "hang", "sentence": "s"}},
    ]  # fmt: skip
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(v) + "\n" for v in lines) + '{"kernel": "k4", "sta')
    found = summary("dense", 6, path)
    assert (found["tried"], found["measured"], found["failures"], found["noise"]) == (4, 3, {"hang": 1}, 0.003)
    assert found["best"]["kernel"] == "k1"
    assert found["best_predicted"] == {"kernel": "k0", "seconds": 2e-9, "rank": 2, "over_best": 2.0}
    assert found["rank_correlation"] == pytest.approx(0.5)
    text = dense(found)
    assert "3 candidates measured of 6 (4 tried; failed: 1 hang)." in text
    assert "Best: 2.0 TFLOP/s, 0.0 us, `x=k1`." in text
    assert "is number 2 of those measured, 100.0 % slower." in text
    assert "Rank correlation of predicted and measured times: 0.500." in text
    assert dense(summary("empty", 6, tmp_path / "absent")) == (
        "## empty\n\n0 candidates measured of 6 (0 tried; failed: none)."
    )


@given(st.lists(st.integers(0, 5), min_size=3, max_size=12), st.randoms())
def test_rank_correlation_is_spearmans(values: list[int], random: object) -> None:
    others = [v * v + 1 for v in values]
    found = rank_correlation(values, others)
    if len(set(values)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(1)
        assert rank_correlation(values, [-v for v in others]) == pytest.approx(-1)


def test_cells_cannot_break_a_table() -> None:
    assert table(["a"], [["x|y\nz"]]) == "| a |\n| --- |\n| x\\|y z |"


def test_the_other_steps_have_their_sections() -> None:
    result = {
        "correctness": {"kernels": 3, "tried": 2, "right": 1, "cases": {"c": {
            "machine": "m", "machines": ["M"], "kernels": 3, "tried": 2, "right": 1, "ended": "it took too long",
            "failures": [{"kernel": "k", "machine": "M", "point": {"bm": 1}, "kind": "wrong", "sentence": "c[0] is 1"}],
        }}},
        "calibration": {
            "figures": [
                {"benchmark": "b", "name": "n", "field": "lat_dram", "value": 700.0, "unit": "cycles", "spread": 0.01,
                 "doubt": ""},
                {"benchmark": "d", "name": "rate", "field": "x", "value": 1.0, "unit": "B", "spread": 0.5,
                 "doubt": "wide"},
            ],
            "failures": [{"benchmark": "e", "sentence": "lost", "skipped": False}], "known": {"lat_dram": 690.0},
        },
        "counters": {"cases": {"axpby": {"counters": [
            {"counter": "ctas", "emulated": 64.0, "measured": 64.0, "verdict": "equal"},
            {"counter": "none", "emulated": 0.0, "measured": 0.0, "verdict": "equal"},
            {"counter": "absent", "emulated": 1.0, "measured": None, "verdict": "not measured"},
        ]}, "simt": {"failed": "the time was up"}}},
        "sanitizer": {"runs": {"axpby: memcheck": {"found": 0}, "simt: memcheck": {"failed": "Device not supported"}}},
        "gpu_tests": {"counts": {"passed": 5, "failed": 1}, "tests": {
            "a": {"outcome": "passed", "why": ""}, "b": {"outcome": "failed", "why": "assert"}}},
    }  # fmt: skip
    steps = [
        {"step": n, "status": "done", "reason": "", "seconds": 1, "limit_s": 2, "result": r} for n, r in result.items()
    ]
    text = report({"steps": steps})
    for part in (
        "1 of 3 kernels are right on the GPU (2 were tried)", "| c | M | 1 of 3 | it took too long |",
        "- c, M `bm=1`: wrong: c[0] is 1", "| lat_dram | 700 cycles | 690 | 1.0 % | b |",
        "1 figures of the device measured; 1 not used, 1 microbenchmarks without a figure.", "- d, rate: 1 B: wide",
        "- e: lost", "| axpby | ctas | 64 | 64 | equal |", "| simt |  |  |  | the time was up |",
        "| axpby: memcheck | 0 |  |", "| simt: memcheck |  | Device not supported |", "5 passed, 1 failed.",
        "| b | failed | assert |",
    ):  # fmt: skip
        assert part in text, part
    assert "| none |" not in text


# -- holes ---------------------------------------------------------------------------------------------------------


def call_results() -> dict[str, object]:
    """What a whole call finds, small."""
    correct = {"machines": ["M"], "kernels": 2, "tried": 2, "right": 1, "refused_cubins": ["CUDA_ERROR_INVALID_IMAGE"],
               "failures": [{"machine": "M", "point": {"x": 1}, "kind": "wrong", "sentence": "s"}]}  # fmt: skip
    side = {"rows": [row("p", 1000, 1e-6), row("copy", 1, 1e-6, role="streams")], "failed": {}, "skipped_kernels": {},
            "protocol": {"rounds": 20, "warm_rounds": 8}, "left": ["s"], "torch": "2.11", "cuda_of_torch": "13.0",
            "bf16_sums_in_bf16": True}  # fmt: skip
    figure = {"field": "lat_dram", "doubt": "", "value": 500.0, "unit": "cycles", "spread": 0.01, "benchmark": "b",
              "name": "n"}  # fmt: skip
    counter = {"counter": "ctas", "emulated": 4.0, "measured": 4.0, "verdict": "equal"}
    found = {
        "environment": MACHINE, "correctness": {"kernels": 2, "tried": 2, "right": 1, "cases": {"a": correct}},
        "side_by_side": side,
        "calibration": {"figures": [figure, {**figure, "doubt": "far off"}], "failures": [], "known": {"lat_dram": 1.0},
                        "stand_in": "the library has no X900"},
        "counters": {"cases": {"a": {"counters": [counter]}, "b": {"failed": "no"}}, "unknown_metrics": []},
        "gpu_tests": {"counts": {"passed": 1}, "tests": {"t": {"outcome": "failed", "why": "w"}}},
        "dense_0": {"case": "d", "kernels": 3, "tried": 3, "measured": 0, "failures": {"hang": 1}},
        "sanitizer": {"runs": {"a": {"found": 0}}},
    }  # fmt: skip
    steps = [
        {"step": n, "status": "done", "reason": "", "seconds": 1.0, "limit_s": 2.0, "result": f}
        for n, f in found.items()
    ]
    return {"schema": "tinygpu-gpu-call/1", "steps": steps}


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where in a value there is something."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, v in inner for p in places(v, (*path, key)))]


def test_a_whole_call_has_a_page_without_a_hole() -> None:
    assert "cannot be shown" not in report(call_results())


WHOLE = call_results()
PLACES = [p for p in places(WHOLE) if len(p) > 3 and p[2] == "result"]


HOLES = st.tuples(st.sampled_from(PLACES), st.sampled_from(["gone", None, {}, "text"]))


@given(st.lists(HOLES, min_size=1, max_size=4))
def test_no_hole_in_what_was_found_costs_the_page(holes: list[tuple[tuple[object, ...], object]]) -> None:
    """Steps that were ended in the middle, figures that a machine does not have, kinds that nobody foresaw."""
    results = deepcopy(call_results())
    for path, put in holes:
        value: object = results
        try:
            for key in path[:-1]:
                value = value[key]  # type: ignore[index]
            if put == "gone":
                del value[path[-1]]  # type: ignore[attr-defined]
            else:
                value[path[-1]] = put  # type: ignore[index]
        except (KeyError, IndexError, TypeError):  # an earlier hole took it away
            continue
    text = report(results)
    assert "## Steps" in text
    for name in ("correctness", "side_by_side", "calibration", "counters"):
        assert f"| {name} | done |" in text


@given(st.sets(st.sampled_from(sorted(MACHINE["clocks"]))))  # type: ignore[arg-type]
def test_the_state_of_a_gpu_is_what_its_driver_tells(missing: set[str]) -> None:
    clocks = {k: None if k in missing else v for k, v in MACHINE["clocks"].items()}  # type: ignore[union-attr]
    text = state(clocks)
    for name, words in {"sm_mhz": "SM 1980 MHz", "memory_mhz": "memory 3201 MHz", "watts": "120 W", "celsius": "40 C",
                        "held_back": "held back by power cap"}.items():  # fmt: skip
        assert (words in text) == (name not in missing)
    assert "None" not in text
