"""References as graphs: what a recorded one gives is what the function gives; what cannot be recorded says why."""

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.files import FileError
from tinygpu.machines.elementwise import Axpby, BiasRelu
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.bounds.answers import answers
from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.measuring.reference import CannotRecord, Graph, evaluate, record


def recorded(function: Callable[..., Any], *names: str, **constants: Any) -> Graph:
    graph = record(function, names, constants, ["y"], "Mine")
    return Graph.from_json(json.loads(json.dumps(graph.to_json())))


FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a @ b.T,
    lambda a, b: np.maximum(a + b, 0) * 2 - 1,
    lambda a, b: (a - a.max(axis=1, keepdims=True)) / np.sqrt((b**2).mean(axis=-1, keepdims=True) + 1e-5),
    lambda a, b: np.exp(a) / np.exp(a).sum(axis=-1, keepdims=True) + b[:, :1],
    lambda a, b: np.where(a > b, a, np.tanh(b)),
    lambda a, b: np.add.reduce(a, axis=0) + np.maximum.reduce(b, axis=0),
    lambda a, b: np.transpose(a)[1:, ::2] * 3,
    lambda a, b: np.concatenate([a, b], axis=0).reshape((-1,)),
    lambda a, b: np.einsum("ij,kj->ik", a, b),
    lambda a, b: 1 / (1 + np.exp(-a)) * abs(b),
    lambda a, b: a.astype(np.float64).clip(-0.5, 0.5) + b.swapaxes(0, 1).transpose(),
]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
@given(st.integers(0, 2**32))
def test_a_graph_gives_what_the_function_gives(number: int, seed: int) -> None:
    function = FUNCTIONS[number]
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((4, 6)), rng.standard_normal((4, 6))
    found = evaluate(recorded(function, "a", "b"), {"a": a, "b": b}, np.float64)["y"]
    np.testing.assert_allclose(found, function(a, b), rtol=1e-12)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32])
def test_what_a_reference_rounds_to_the_type_of_an_input_is_rounded(kind: Any) -> None:
    graph = record(lambda a: np.exp(a).astype(a.dtype) * 3, ["a"], {}, ["y"], "Mine", {"a": np.dtype(kind)})
    again = Graph.from_json(json.loads(json.dumps(graph.to_json())))
    a = np.linspace(-9, 3, 1000)
    wanted = np.exp(a).astype(kind).astype(np.float64) * 3 if kind != np.float32 else np.exp(a) * 3
    np.testing.assert_array_equal(evaluate(again, {"a": a}, np.float64)["y"], wanted)
    tripled, kinds = (lambda a: {"y": np.exp(a).astype(a.dtype) * 3}), {"a": np.dtype(kind)}
    found = answers(tripled, {"a": a}, {}, ["y"], Rounding(False), kinds)["y"]
    assert ((found.low <= wanted) & (wanted <= found.high)).all()
    assert bool((found.high - found.low > 1e-4 * np.abs(wanted)).any()) == (kind != np.float32)


def test_the_machines_that_ship_can_be_recorded() -> None:
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal(9), rng.standard_normal(9)
    graph = record(Axpby.reference, ["x", "z", "a", "b"], {}, ["y"], "Axpby")
    np.testing.assert_allclose(evaluate(graph, {"x": x, "z": z, "a": 2.0, "b": 3.0}, np.float64)["y"], 2 * x + 3 * z)
    graph = record(BiasRelu.reference, ["x", "bias"], {}, ["y"], "BiasRelu")
    found = evaluate(graph, {"x": x.reshape(3, 3), "bias": z[:3]}, np.float64)["y"]
    np.testing.assert_allclose(found, np.maximum(x.reshape(3, 3) + z[:3], 0))
    a, b, bias = rng.standard_normal((5, 7)), rng.standard_normal((7, 3)), rng.standard_normal(3)
    for activation in ("none", "relu", "gelu", "silu"):
        options = {"with_bias": True, "activation": activation}
        graph = record(MatmulHopper.reference, ["a", "b", "bias"], options, ["c"], "MatmulHopper")
        found = evaluate(graph, {"a": a, "b": b, "bias": bias}, np.float64)["c"]
        np.testing.assert_allclose(found, MatmulHopper.reference(a, b, bias=bias, **options), rtol=1e-12)


def test_options_decide_while_recording() -> None:
    graph = recorded(lambda a, twice: a * 2 if twice else a + 0, "a", twice=True)
    assert [name for name, _, _ in graph.calls] == ["multiply"]


def test_single_precision_is_single_precision() -> None:
    graph = recorded(lambda a: a + 1e-9, "a")
    assert evaluate(graph, {"a": np.ones(1)}, np.float32)["y"].dtype == np.float32
    assert evaluate(graph, {"a": np.ones(1)}, np.float64)["y"][0] != 1


def test_several_outputs_come_by_name() -> None:
    graph = record(lambda a: {"s": a.sum(axis=0), "m": a.max(axis=0)}, ["a"], {}, ["s", "m"], "Mine")
    a = np.arange(6.0).reshape(2, 3)
    found = evaluate(graph, {"a": a}, np.float64)
    assert found["s"].tolist() == a.sum(axis=0).tolist()
    assert found["m"].tolist() == a.max(axis=0).tolist()


def branches(a: Any) -> Any:
    return a if a > 0 else -a


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (branches, "Mine: its reference decides by the values of its inputs; use np.where"),
    (lambda a: np.fft.fft(a), "Mine: its reference calls fft, which a bundle cannot carry"),
    (lambda a: np.linalg.norm(a), "Mine: its reference calls norm, which a bundle cannot carry"),
    (lambda a: a.tobytes(), "Mine: its reference asks an array for 'tobytes', which a bundle cannot carry"),
    (lambda a: np.zeros(3), "Mine: its reference gives no array for y that comes of its inputs"),
    (lambda a: a + np.ones(3), "Mine: its reference uses a value of type ndarray, which a bundle cannot carry"),
    (lambda a: float(a), "Mine: its reference makes a Python number of an input; use NumPy's functions"),
    (
        lambda a: np.asarray(a) + 1,
        "Mine: its reference makes an array of its own of an input; use NumPy's functions",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_be_recorded_says_why(number: int) -> None:
    function, sentence = REFUSED[number]
    with pytest.raises(CannotRecord) as error:
        record(function, ["a"], {}, ["y"], "Mine")
    assert str(error.value) == sentence


@pytest.mark.parametrize("name", ["fromfile", "load", "frompyfunc", "add.at", "save", "ctypeslib", "eval", "getitem.x"])
def test_a_graph_from_a_file_calls_nothing_but_what_is_listed(name: str) -> None:
    with pytest.raises(FileError) as error:
        Graph.from_json({"calls": [[name, [], {}]], "outputs": {}})
    assert str(error.value) == f"a reference graph: a reference graph cannot call {name}"
