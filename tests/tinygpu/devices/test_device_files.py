"""A device in a file of its own: what it must hold, and the sentence for each mistake in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tinygpu.devices import Device, device, devices, load_device
from tinygpu.devices.fields import REQUIRED
from tinygpu.devices.figure import KINDS

each = pytest.mark.parametrize("gpu", devices(), ids=lambda gpu: gpu.name)


@each
def test_a_saved_device_loads_as_the_same_one(gpu: Device, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    gpu.save(path)
    assert load_device(path) == gpu
    assert device(str(path)) == gpu


def short_file() -> dict[str, object]:
    """The least that a device file may hold."""
    gpu = device("a10")
    return {
        "schema": "tinygpu-device/1",
        "name": "mine",
        "figures": {field: gpu.given(field).to_json() for field in REQUIRED},
    }


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_device_file_needs_only_the_required_figures(tmp_path: Path) -> None:
    gpu = load_device(written(tmp_path, short_file()))
    assert gpu.sm_count == 72
    assert gpu.figure("lat_dram").kind == "derived"
    assert gpu.constants()["max_cluster_size_nonportable"] == 1
    assert gpu.sustained_tensor_share == 1.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            '{"a": "b',
            "[{path}] is not JSON: Unterminated string starting at line 1, column 7",
        ),
        ("{", "[{path}] is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ({"schema": "other"}, "[{path}] the schema must be 'tinygpu-device/1', not 'other'"),
        ({"name": ""}, "[{path}] the name must be a text, not ''"),
        ({"aliases": "x"}, "[{path}] aliases must be a list of texts, not 'x'"),
        ({"figures": []}, "[{path}] figures must be an object of field: figure, not []"),
        (
            {"sm_counts": {"value": 1, "unit": "SMs", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] unknown figure 'sm_counts'; did you mean 'sm_count'?",
        ),
        (
            {"boost_clock_mhz": {"value": 1.7, "unit": "GHz", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] boost_clock_mhz is given in 'GHz'; it must be in 'MHz'",
        ),
        (
            {"sm_count": {"value": "72", "unit": "SMs", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] sm_count must be a number, not '72'",
        ),
        (
            {"sm_count": {"value": -72, "unit": "SMs", "source": "me", "kind": "spec"}},
            "[{path}] figure 'sm_count': the value of a figure is finite and not negative, not -72",
        ),
        (
            {"sm_count": {"value": 72, "unit": "SMs", "kind": "spec"}},
            "[{path}] figure 'sm_count' lacks source: every figure says what it is and where from",
        ),
        (
            {"sm_count": {"value": 72, "unit": "SMs", "source": "me", "kind": "spec", "date": "today"}},
            "[{path}] figure 'sm_count' has the unknown key 'date'; known: value, unit, source, kind, note",
        ),
        (
            {"sm_count": {"value": 72, "unit": "SMs", "source": "me", "kind": "guess"}},
            "[{path}] figure 'sm_count': unknown kind of figure 'guess'; known: " + ", ".join(KINDS),
        ),
        (
            {"sm_count": {"value": None, "unit": "SMs", "source": "", "kind": "null"}},
            "[{path}] [device mine] the figure 'sm_count' is missing: no model works without it",
        ),
        (
            {"max_warps_per_sm": {"value": 40, "unit": "warps", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] 40 warps of 32 lanes are not 1536 threads per SM",
        ),
        (
            {"ptx_target": {"value": "sm_90a", "unit": "ptx .target", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] target sm_90a does not belong to compute capability 8.6",
        ),
    ],
)
def test_a_bad_device_file_is_refused_with_a_sentence(change: object, sentence: str, tmp_path: Path) -> None:
    data: object = change
    if isinstance(change, dict):
        base = short_file()
        data = base | change if set(change) & {"schema", "name", "aliases", "figures"} else base
        if data is base:
            base["figures"] = {**base["figures"], **change}  # type: ignore[dict-item]
    path = written(tmp_path, data)
    with pytest.raises(ValueError) as caught:
        device(str(path))
    assert str(caught.value) == sentence.replace("{path}", str(path))


def test_a_missing_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        device(str(tmp_path / "none.json"))
    assert str(caught.value) == f"{tmp_path / 'none.json'} cannot be read: No such file or directory"
