"""The results file: what is written is read again, a cut line is dropped, and other runs' files are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.files import FileError
from tinygpu.ptx.measuring.results import VERSION, Results, failed, measured
from tinygpu.ptx.measuring.statistics import ratio, spread
from tinygpu.search.measured import load_results

HEADER: dict[str, Any] = {
    "bundle": "abc", "title": "sums", "device": "H200-SXM", "date": "2026-03-01T10:00:00+00:00",
    "gpu": {"name": "NVIDIA H200", "driver": "13.0"}, "problems": [{"dims": {"n": 8}}],
}  # fmt: skip


def details(name: str) -> dict[str, Any]:
    return {"machine": "Add", "point": {"k": name}, "question": 0, "digest": name, "predicted_s": 1e-6}


def line_of(name: str, seconds: float | None, relative: float = 1.0) -> dict[str, Any]:
    if seconds is None:
        return failed(name, "hang", "it did not end within 5 s", details(name))
    times = [seconds] * 8
    pair = ratio(times, [seconds / relative] * 8)
    return measured(name, spread(times), None, "", pair, pair.verdict(0.01), relative, details(name))


@settings(max_examples=40)
@given(
    st.lists(st.floats(1e-6, 1e-3) | st.none(), max_size=8),
    st.integers(0, 400),
)
def test_a_file_that_was_cut_anywhere_holds_what_was_whole(
    tmp_path_factory: pytest.TempPathFactory, times: list[float | None], cut: int
) -> None:
    path = tmp_path_factory.mktemp("results") / "r.jsonl"
    results = Results(path, HEADER)
    wanted = {}
    for number, seconds in enumerate(times):
        name = f"k{number}"
        results.begin(name)
        wanted[name] = line_of(name, seconds)
        results.record(wanted[name])
    results.close()
    data = path.read_bytes()
    path.write_bytes(data[: max(len(data) - cut, 0)])
    whole = [json.loads(text) for text in data[: max(len(data) - cut, 0)].split(b"\n")[:-1]]
    for line in whole:
        del line["crc32"]
    again = Results(path, HEADER)
    kept = {line["kernel"]: line for line in whole if "kernel" in line}
    assert again.done == json.loads(json.dumps(kept))
    begun = {line["begin"]: 1 for line in whole if "begin" in line}
    assert again.begun == begun
    again.close()
    assert path.read_bytes().endswith(b"\n")
    for text in path.read_bytes().splitlines():
        json.loads(text)


def test_noise_and_finals_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    results = Results(path, HEADER)
    results.record_noise(0.004, ratio([1.0] * 8, [1.0] * 8))
    results.record_final({"kernel": "k1", "verdict": "tie"})
    results.end(3.14159)
    results.close()
    again = Results(path, HEADER)
    again.close()
    assert (again.noise, again.finals) == (0.004, {"k1": {"kernel": "k1", "verdict": "tie"}})
    assert '"end": {"seconds": 3.142}' in path.read_text()


def refusal(path: Path, **changed: Any) -> str:
    with pytest.raises(FileError) as error:
        Results(path, {**HEADER, **changed})
    return str(error.value)


def test_files_of_other_runs_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    Results(path, HEADER).close()
    before = path.read_bytes()
    assert refusal(path, bundle="xyz") == f"{path} holds results of another bundle; give another path"
    gpu = {"name": "NVIDIA L4", "driver": "13.0"}
    assert refusal(path, gpu=gpu) == (
        f"{path} was measured on NVIDIA H200, and this is NVIDIA L4; give another path"
    )
    assert path.read_bytes() == before
    path.write_text('{"tinygpu_results": 99}\n')
    assert refusal(path) == f"{path} is no results file of version {VERSION}; give another path"
    for text in ("something\n", "something", "x" * 60_000, '{"tinygpu_run": 1}'):
        path.write_text(text)
        assert refusal(path) == f"{path} is there and is not a results file; it is left as it is: give another path"
        assert path.read_text() == text


@given(st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=6), st.data())
def test_the_ranking_follows_the_turns_and_no_tie_takes_the_incumbents_place(
    tmp_path_factory: pytest.TempPathFactory, times: list[float], data: st.DataObject
) -> None:
    """Against the worker's rule: the incumbent is replaced by what is told to be faster, by nothing else."""
    path = tmp_path_factory.mktemp("results") / "r.jsonl"
    path.unlink(missing_ok=True)
    results = Results(path, HEADER)
    noise = 0.01
    results.record_noise(noise, ratio([1.0] * 8, [1.0] * 8))
    incumbent, relative = "", {}
    for number, seconds in enumerate(times):
        name = f"k{number}"
        line = line_of(name, seconds)
        if incumbent:
            pair = ratio([seconds] * 8, [times[int(incumbent[1:])]] * 8)
            line |= {"relative": pair.median * relative[incumbent], "verdict": pair.verdict(noise)}
        else:
            line |= {"relative": 1.0, "verdict": None}
        relative[name] = line["relative"]
        results.record(line)
        if not incumbent or line["verdict"] == "faster":
            incumbent = name
    results.close()
    found = load_results(path)
    assert found.ranked()[0].kernel == incumbent
    others = [m.relative for m in found.ranked()[1:]]
    assert others == sorted(others, key=lambda r: r or 0)
    for m in found.ranked():
        assert m.relative == pytest.approx(times[int(m.kernel[1:])] / times[0])
    best = times[int(incumbent[1:])]
    tied = {m.kernel for m in found.ties()}
    for m in found.ranked()[1:]:
        share = times[int(m.kernel[1:])] / best
        if abs(share - (1 + noise)) > 1e-9:
            assert (m.kernel in tied) == (share <= 1 + noise)
