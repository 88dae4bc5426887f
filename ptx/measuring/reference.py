"""A machine's reference as data: recorded once as a graph of NumPy calls, evaluated where the kernels are timed.

`record` runs a reference on stand-ins that write down what is done to them; `evaluate` does it to arrays. What a graph
may call is listed here, so that reading one never runs anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tinygpu.files.error import excerpt
from tinygpu.files.shape import built

# Functions beside NumPy's ufuncs.
_FUNCTIONS = frozenset(
    {
        "where", "clip", "sum", "mean", "prod", "max", "min", "amax", "amin", "var", "std", "cumsum", "transpose",
        "reshape", "swapaxes", "moveaxis", "expand_dims", "squeeze", "broadcast_to", "concatenate", "stack", "dot",
        "einsum", "outer", "zeros_like", "ones_like", "nan_to_num", "repeat", "tile", "diff", "take", "flip", "round",
    }
)  # fmt: skip
# Types to which a reference may round what it computes.
NARROW = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
_REDUCTIONS = frozenset({"reduce", "accumulate"})
_METHODS = ("sum", "mean", "prod", "max", "min", "var", "std", "cumsum", "reshape", "transpose", "swapaxes", "clip",
            "squeeze", "dot", "repeat", "take", "round")  # fmt: skip


class CannotRecord(ValueError):
    """A reference that does more than NumPy calls on its inputs; the sentence says what."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Calls in order; each may use inputs and the results of earlier ones.

    calls    (name of a function, arguments, keyword arguments); an argument {"input": name} or {"call": number} is a
             value, {"slice": [start, stop, step]} a slice, {"tuple": [...]} a tuple, {"float": "inf"} a number that
             JSON lacks, all else itself
    outputs  name -> argument

    Raises CannotRecord for a function that no graph may call, ValueError for arguments that are none of these.
    """

    calls: tuple[tuple[str, tuple[Any, ...], Mapping[str, Any]], ...]
    outputs: Mapping[str, Any]

    def __post_init__(self) -> None:
        for number, (name, args, kwargs) in enumerate(self.calls):
            _function(name)
            for argument in (*args, *kwargs.values()):
                _check_argument(argument, number)
        for argument in self.outputs.values():
            _check_argument(argument, len(self.calls))

    def inputs(self) -> frozenset[str]:
        """Names of the inputs that it uses."""
        found: set[str] = set()

        def look(argument: Any) -> None:
            if isinstance(argument, Mapping):
                if "input" in argument:
                    found.add(argument["input"])
                look(argument.get("tuple", []))
            elif isinstance(argument, list):
                for each in argument:
                    look(each)

        for _, args, kwargs in self.calls:
            look([*args, *kwargs.values()])
        look(list(self.outputs.values()))
        return frozenset(found)

    def to_json(self) -> dict[str, Any]:
        return {"calls": [[n, list(a), dict(k)] for n, a, k in self.calls], "outputs": dict(self.outputs)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Graph:
        """What `to_json` gave. Raises FileError for anything else."""
        return built(Graph, data, "a reference graph")


def record(
    reference: Callable[..., Any],
    names: Sequence[str],
    constants: Mapping[str, Any],
    outputs: Sequence[str],
    where: str,
    kinds: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph of a reference.

    names      its inputs and scalars
    constants  its options, which are given as they are
    outputs    names of its results
    where      how errors call it
    kinds      NumPy's types of the inputs, which a reference may ask for
    """
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    stand_ins = {name: _StandIn(calls, {"input": name}, where, (kinds or {}).get(name)) for name in names}
    # Recording is done where kernels are searched; the machine that times them may lack what the language needs.
    from tinygpu.users_code import users_code

    with users_code(f"{where}: its reference", CannotRecord):
        result = reference(**stand_ins, **constants)
    given = result if isinstance(result, dict) else {outputs[0]: result}
    missing = [name for name in outputs if not isinstance(given.get(name), _StandIn)]
    if missing:
        raise CannotRecord(f"{where}: its reference gives no array for {missing[0]} that comes of its inputs")
    return Graph(tuple(calls), {name: given[name].argument for name in outputs})


def evaluate(graph: Graph, inputs: Mapping[str, Any], precision: Any = None) -> dict[str, Any]:
    """The outputs for arrays, in `precision` (np.float32 or np.float64); as they are given, where that is left out."""
    arrays = dict(inputs)
    if precision is not None:
        arrays = {name: np.asarray(value, dtype=precision) for name, value in inputs.items()}
    last = {}
    for number, (_, args, kwargs) in enumerate(graph.calls):
        for used in _used([*args, *kwargs.values()]):
            last[used] = number
    kept = set(_used(list(graph.outputs.values())))
    values: dict[int, Any] = {}

    def value(argument: Any) -> Any:
        if isinstance(argument, Mapping):
            if "input" in argument:
                return arrays[argument["input"]]
            if "call" in argument:
                return values[argument["call"]]
            if "slice" in argument:
                return slice(*argument["slice"])
            if "float" in argument:
                return float(argument["float"])
            return tuple(value(a) for a in argument["tuple"])
        return [value(a) for a in argument] if isinstance(argument, list) else argument

    with np.errstate(all="ignore"):
        for number, (name, args, kwargs) in enumerate(graph.calls):
            values[number] = _function(name)(*map(value, args), **{k: value(v) for k, v in kwargs.items()})
            # what nothing uses any more is let go: these arrays are as large as the problem
            for used in [u for u, n in last.items() if n == number and u not in kept]:
                values.pop(used, None)
        return {name: value(argument) for name, argument in graph.outputs.items()}


def _check_argument(argument: Any, calls: int) -> None:
    """Raises ValueError for what no argument is; `calls` were made before."""
    match argument:
        case None | bool() | int() | float() | str():
            return
        case {"input": str(), **rest} if not rest:
            return
        case {"call": int(number), **rest} if not rest and type(number) is int and 0 <= number < calls:
            return
        case {"slice": [_, _, _] as bounds, **rest} if not rest and all(b is None or type(b) is int for b in bounds):
            return
        case {"float": "inf" | "-inf" | "nan", **rest} if not rest:
            return
        case {"tuple": list(parts), **rest} if not rest:
            for part in parts:
                _check_argument(part, calls)
        case list():
            for part in argument:
                _check_argument(part, calls)
        case _:
            raise ValueError(f"{excerpt(argument)} is no argument of call {calls} of a reference graph")


def _used(arguments: Sequence[Any]) -> list[int]:
    found: list[int] = []
    for a in arguments:
        if isinstance(a, Mapping):
            found += [a["call"]] if "call" in a else _used(a.get("tuple", []))
        elif isinstance(a, list):
            found += _used(a)
    return found


def _function(name: str) -> Callable[..., Any]:
    base, _, method = name.partition(".")
    if name == "getitem":
        return lambda array, index: array[index]
    if name == "rounded":
        return _rounded
    found = getattr(np, base, None)
    if isinstance(found, np.ufunc) and (not method or method in _REDUCTIONS):
        made: Callable[..., Any] = getattr(found, method) if method else found
        return made
    if base in _FUNCTIONS and not method and found is not None:
        called: Callable[..., Any] = found
        return called
    raise CannotRecord(f"a reference graph cannot call {name}")


def _rounded(array: Any, name: str) -> Any:
    """The array in the precision in which it is held, rounded to a narrower type on the way."""
    import ml_dtypes  # where no reference asks for it, kernels are timed with NumPy alone

    narrow = np.dtype(getattr(np if name == "float16" else ml_dtypes, name))
    rounded = array.astype(narrow)
    return rounded.astype(array.dtype) if isinstance(array, np.ndarray) else rounded


class _StandIn(NDArrayOperatorsMixin):
    """Stands for an array in a reference, and writes down what is done to it.

    dtype  what the reference is told of its type; of what is computed, that of the precision
    """

    def __init__(self, calls: list[Any], argument: Mapping[str, Any], where: str, dtype: Any = None) -> None:
        self.calls = calls
        self.argument = argument
        self.where = where
        self.dtype = np.dtype(np.float64 if dtype is None else dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> _StandIn:
        return self._call(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> _StandIn:
        return self._call(function.__name__, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return lambda *args, **kwargs: self._call(name, (self, *args), kwargs)
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotRecord(f"{self.where}: its reference asks an array for {name!r}, which a bundle cannot carry")

    @property
    def T(self) -> _StandIn:
        return self._call("transpose", (self,), {})

    def astype(self, kind: Any, **_: Any) -> _StandIn:
        """The reference is evaluated in one precision throughout; what it rounds to a narrower type is rounded."""
        to = np.dtype(kind)
        if to.name not in NARROW:
            return self
        return self._call("rounded", (self, to.name), {})

    def __getitem__(self, index: Any) -> _StandIn:
        return self._call("getitem", (self, index), {})

    def __bool__(self) -> bool:
        raise CannotRecord(f"{self.where}: its reference decides by the values of its inputs; use np.where")

    def __float__(self) -> float:
        raise CannotRecord(f"{self.where}: its reference makes a Python number of an input; use NumPy's functions")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise CannotRecord(f"{self.where}: its reference makes an array of its own of an input; use NumPy's functions")

    def _call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _StandIn:
        try:
            _function(name)
        except CannotRecord:
            raise CannotRecord(f"{self.where}: its reference calls {name}, which a bundle cannot carry") from None
        given = {k: self._argument(v) for k, v in kwargs.items() if v is not None and k != "dtype"}
        self.calls.append((name, tuple(self._argument(a) for a in args), given))
        return _StandIn(self.calls, {"call": len(self.calls) - 1}, self.where)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, _StandIn):
            return value.argument
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, tuple):
            return {"tuple": [self._argument(v) for v in value]}
        if isinstance(value, list):
            return [self._argument(v) for v in value]
        if isinstance(value, np.generic):
            return self._argument(value.item())
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": repr(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        kind = type(value).__name__
        raise CannotRecord(f"{self.where}: its reference uses a value of type {kind}, which a bundle cannot carry")
