"""An array with error in the place of one of NumPy's: a reference is called with it, and does not notice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tinygpu.ptx.bounds import elementwise, moved, sums
from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.contraction import contracted, summed_terms
from tinygpu.ptx.bounds.enclosure import CannotBound, Enclosure, Values, between, exactly, marks_of
from tinygpu.ptx.bounds.of_sizes import of_sizes

# Methods that are functions of NumPy, too.
_METHODS = frozenset(
    {
        "sum", "mean", "prod", "max", "min", "var", "std", "cumsum", "cumprod", "argmax", "argmin", "argsort", "any",
        "all", "reshape", "ravel", "transpose", "swapaxes", "squeeze", "repeat", "take", "diagonal", "trace", "clip",
        "round", "dot", "compress", "sort", "copy", "nonzero",
    }
)  # fmt: skip
_REDUCED = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_or": "any", "logical_and": "all",
}  # fmt: skip
_BITS = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})
# What hangs on no element's value.
_SHAPES = frozenset({"shape", "ndim", "size", "result_type", "can_cast", "iscomplexobj", "isrealobj", "issubdtype"})
# Answers are places or numbers of elements: they are those of exact values, or none.
_PLACES = frozenset({"argmax", "argmin", "argsort", "nonzero", "flatnonzero", "count_nonzero", "searchsorted", "unique",
                     "array_equal", "allclose", "isclose", "bincount", "histogram"})  # fmt: skip


def _rounded(values: Values, to: Any) -> Values:
    """Numbers of a narrower float; of 8 bits, they saturate (PTX ISA, cvt)."""
    import ml_dtypes  # where no type asks for it, results are judged with NumPy alone

    largest = float(ml_dtypes.finfo(to).max)
    with np.errstate(all="ignore"):
        held = np.clip(values, -largest, largest) if to.itemsize == 1 else values
        return np.asarray(held, dtype=np.float64).astype(to).astype(np.float64)


def _whole_of(held: Enclosure, to: np.dtype[Any]) -> Enclosure:
    """Truth values and whole numbers, some of which rounding decides, as whole numbers of another type."""
    fits = held.value.dtype.kind in "iub" and to.kind in "iu"
    if not fits or np.min(held.low) < np.iinfo(to).min or np.max(held.high) > np.iinfo(to).max:
        raise CannotBound(f"makes {to} of values that are rounded")
    kept = to if to in (np.uint32, np.uint64) else np.dtype(np.int64)
    return between(held.value.astype(kept), held.low.astype(kept), held.high.astype(kept), held.marks)


class Enclosed(NDArrayOperatorsMixin):
    """One array with error, under a machine's rounding.

    kind  what a reference is told of its type: the tensor's own, where it is one that was given
    """

    __array_priority__ = 1000.0

    def __init__(self, enclosure: Enclosure, rounding: Rounding, kind: np.dtype[Any] | None = None) -> None:
        self.enclosure = enclosure
        self.rounding = rounding
        self.kind = kind

    # -- NumPy's protocols -----------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        kwargs = {k: v for k, v in kwargs.items() if k not in ("out", "dtype", "casting") and v is not None}
        if method == "__call__":
            if ufunc is np.matmul:
                return self._product(ufunc, inputs, self._enclosure(inputs[0]).value.shape[-1])
            if ufunc.signature is not None:  # other products of whole axes
                raise CannotBound(f"calls {ufunc.__name__}")
            chosen = kwargs.pop("where", True)
            if kwargs or chosen is not True:
                raise CannotBound(f"calls {ufunc.__name__} with {', '.join(kwargs) or 'where'}")
            return self._made(elementwise.apply(ufunc, [self._enclosure(i) for i in inputs], self.rounding))
        if method == "reduce" and ufunc.__name__ in _REDUCED:
            kwargs.setdefault("axis", 0)
            return self._call(getattr(np, _REDUCED[ufunc.__name__]), inputs, kwargs)
        if method == "reduce" and ufunc.__name__ in _BITS:
            held = self._enclosure(inputs[0])
            if not held.exact:
                raise CannotBound(f"calls {ufunc.__name__}.reduce on values that are rounded")
            return self._made(exactly(ufunc.reduce(held.value, **kwargs), marks=held.marks))
        if method == "accumulate" and ufunc in (np.add, np.maximum, np.minimum):
            accumulated = np.cumsum if ufunc is np.add else lambda a, axis=0: ufunc.accumulate(a, axis)
            return self._accumulated(ufunc, accumulated, inputs, kwargs)
        if method == "at" and ufunc is np.add and isinstance(inputs[0], Enclosed):
            inputs[0]._add_at(inputs[1], inputs[2])
            return None
        if method == "outer":
            first, second = (self._enclosure(i) for i in inputs)
            shape = (*first.value.shape, *(1,) * second.value.ndim)
            return ufunc(self._made(first).reshape(shape), self._made(second))
        raise CannotBound(f"calls {ufunc.__name__}.{method}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._call(function, args, {k: v for k, v in kwargs.items() if k not in ("out", "dtype")})

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise CannotBound("makes an array of its own of an input, as np.uint32(x) does; x.astype(np.uint32) is known")

    # -- what an array has -----------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self.enclosure.value.shape

    @property
    def ndim(self) -> int:
        return self.enclosure.value.ndim

    @property
    def size(self) -> int:
        return self.enclosure.value.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kind or self.enclosure.value.dtype

    @property
    def T(self) -> Enclosed:
        found: Enclosed = self._call(np.transpose, (self,), {})
        return Enclosed(found.enclosure, self.rounding, self.kind)

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            function = getattr(np, name)
            return lambda *args, **kwargs: self._method(function, args, kwargs)
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotBound(f"asks an array for {name!r}")

    def astype(self, kind: Any, **_: Any) -> Enclosed:
        """The values in another type: rounded to a narrower float, by half a unit of its last place at most.

        What exceeds its largest number is infinite, or of 8 bits that number; what is below its least normal one is
        rounded to a multiple of the least.
        """
        to, held = np.dtype(kind), self.enclosure
        if to.kind in "iub":
            if not held.exact:
                return self._made(_whole_of(held, to))
            # who asks for u32 or u64 counts modulo 2^32 or 2^64, as hashes do
            kept = to.kind == "b" or to in (np.uint32, np.uint64)
            return self._made(exactly(held.value.astype(to).astype(to if kept else np.int64)))
        if to.itemsize < 4 and held.quantum:  # beyond what the type holds they are rounded, and known all the same
            return self._made(exactly(_rounded(held.value, to), marks=held.marks))
        if to.itemsize >= 4:
            return self._made(Enclosure(held.value * 1.0, held.low * 1.0, held.high * 1.0, 0.0, held.marks)
                              if held.value.dtype.kind in "iub" else held)  # fmt: skip
        last = 2.0 ** -(10 if to == np.float16 else 7)
        factor = self._made(Enclosure(np.array(1.0), np.array(1 - last / 2), np.array(1 + last / 2)))
        near = (self * factor).enclosure
        ends = [_rounded(end, to) for end in (held.low, held.high)]
        low, high = np.fmin(near.low, ends[0]), np.fmax(near.high, ends[1])
        missing = np.isnan(near.value)  # it must be one
        low, high = np.where(missing, near.low, low), np.where(missing, near.high, high)
        return self._made(Enclosure(near.value, low, high, 0.0, near.marks))

    def item(self) -> Any:
        return float(self)

    def __len__(self) -> int:
        return len(self.enclosure.value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Enclosed:
        at = self._index(index)
        held = self.enclosure
        value = np.asarray(held.value[at])
        low, high = (value, value) if held.exact else (np.asarray(held.low[at]), np.asarray(held.high[at]))
        span = None if held.span is None else np.asarray(held.span[at])
        made = Enclosure(value, low, high, held.quantum, held.marks, held.terms, span)
        return Enclosed(made, self.rounding, self.kind)

    def __setitem__(self, index: Any, given: Any) -> None:
        at, held, put = self._index(index), self.enclosure, self._enclosure(given)
        parts = [(held.value, put.value), (held.low, put.low), (held.high, put.high)]
        quantum, marks = min(held.quantum, put.quantum), marks_of(held, put)
        if held.exact and put.exact:
            value = _replaced(*parts[0], at)
            self.enclosure = Enclosure(value, value, value, quantum, marks)
            return
        value, low, high = (_replaced(old, new, at) for old, new in parts)
        self.enclosure = Enclosure(value, low, high, 0.0, marks, max(held.terms, put.terms))

    def __bool__(self) -> bool:
        return bool(self._number("a decision"))

    def __float__(self) -> float:
        raise CannotBound("makes a Python number of an input")

    def __int__(self) -> int:
        return int(self._number("a whole number"))

    def __index__(self) -> int:
        return int(self._number("an index"))

    # -- how functions are called ----------------------------------------------------------------------------------
    def _method(self, function: Any, args: Any, kwargs: Any) -> Any:
        kwargs = {k: v for k, v in kwargs.items() if k not in ("out", "dtype")}
        if function is np.reshape and len(args) > 1:
            args = (args,)
        if function is np.transpose and len(args) > 1:
            args = (args,)
        return self._call(function, (self, *args), kwargs)

    def _call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = function.__name__
        rule = getattr(type(self), f"_np_{name}", None)
        if rule is not None:
            return rule(self, *args, **kwargs)
        if name in _SHAPES:
            return function(*_swapped(args, lambda e: e.value), **_swapped(dict(kwargs), lambda e: e.value))
        if name in _PLACES:
            if not all(e.exact for e in _found([args, kwargs])):
                raise CannotBound(f"calls {name} on values that are rounded")
            return function(*_swapped(args, lambda e: e.value), **_swapped(dict(kwargs), lambda e: e.value))
        if not moved.known(name, kwargs, args):
            raise CannotBound(f"calls {name}")
        args = [self._listed(a) for a in args]
        found = _found([args, kwargs])

        def call(function: Any, arrays: Sequence[Values]) -> Any:
            waiting = iter(arrays)
            swapped = _swapped([args, dict(kwargs)], lambda e: next(waiting))
            return function(*swapped[0], **swapped[1])

        result = moved.apply(function, found, call)
        return [self._made(r) for r in result] if isinstance(result, list) else self._made(result)

    def _listed(self, argument: Any) -> Any:
        """What stands in one list with arrays with error, as one of them: np.concatenate([x, [0, 0]])."""
        if not isinstance(argument, (list, tuple)) or not any(isinstance(a, Enclosed) for a in argument):
            return argument
        return [a if isinstance(a, Enclosed) else self._made(of_sizes(a, self.rounding)) for a in argument]

    def _product(self, function: Callable[..., Values], operands: Sequence[Any], terms: float) -> Enclosed:
        held = [self._enclosure(o) for o in operands]
        return self._made(sums.linear(function, held, terms, self.rounding, of_products=True))

    def _add_at(self, index: Any, given: Any) -> None:
        """np.add.at: an element that is named several times gets all that is given for it, in any order.

        Of an array of 16 bits each sum is rounded to what it holds.
        """
        at, held = self._index(index), self.enclosure
        often = np.zeros(held.value.shape, dtype=np.int64)
        np.add.at(often, at, 1)

        def added(here: Values, more: Values) -> Values:
            out = np.array(np.broadcast_to(here, held.value.shape), dtype=np.result_type(here, more))
            np.add.at(out, at, more)
            return out

        put, rounding = self._enclosure(given), self.rounding.kept_as(self.dtype)
        parts = (held.value, put.value)
        if all(e.exact and np.array_equal(e.value, np.rint(e.value)) for e in (held, put)):
            most = np.max(added(*(np.abs(part) for part in parts)), initial=0)
            rounding = self.rounding if most <= rounding.whole else rounding  # whole numbers that the type holds
        found = sums.linear(added, [held, put], 1 + int(often.max(initial=0)), rounding)
        self.enclosure = found

    def _np_copy(self, *_: Any, **__: Any) -> Enclosed:
        """The same, of the same type."""
        return Enclosed(self.enclosure, self.rounding, self.kind)

    def _accumulated(self, ufunc: np.ufunc, function: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        axis = kwargs.get("axis", 0)
        held = self._enclosure(inputs[0])
        if ufunc is np.add:
            return self._product(lambda a: np.cumsum(a, axis), [inputs[0]], held.value.shape[axis])
        return self._made(moved.apply(function, [held], lambda f, arrays: f(arrays[0], axis)))

    def _enclosure(self, value: Any) -> Enclosure:
        return value.enclosure if isinstance(value, Enclosed) else of_sizes(value, self.rounding)

    def _made(self, enclosure: Enclosure) -> Enclosed:
        return Enclosed(enclosure, self.rounding)

    def _index(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return tuple(self._index(i) for i in index)
        if isinstance(index, Enclosed):
            if not np.array_equal(index.enclosure.low, index.enclosure.high):
                raise CannotBound("chooses elements by values that are rounded")
            return index.enclosure.value
        return index

    def _number(self, what: str) -> Values:
        held = self.enclosure
        if held.value.size != 1:
            raise ValueError("the truth or number of an array with more than one element is ambiguous")
        if not np.array_equal(held.low, held.high):
            raise CannotBound(f"makes {what} of a value that is rounded")
        return held.value.reshape(())

    # -- functions with a rule of their own ------------------------------------------------------------------------
    def _np_where(self, condition: Any, chosen: Any = None, other: Any = None) -> Any:
        if chosen is None or other is None:
            return self._call(np.nonzero, (condition,), {})
        return self._made(elementwise.where(*[self._enclosure(v) for v in (condition, chosen, other)]))

    def _np_sum(self, a: Any, axis: Any = None, keepdims: bool = False, **rest: Any) -> Any:
        _no_more("sum", rest)
        terms = _terms(self._enclosure(a).value, axis)
        return self._product(lambda v: np.sum(v, axis=axis, keepdims=keepdims), [a], terms)

    def _np_mean(self, a: Any, axis: Any = None, keepdims: bool = False, **rest: Any) -> Any:
        _no_more("mean", rest)
        return self._np_sum(a, axis, keepdims) / float(_terms(self._enclosure(a).value, axis))

    def _np_average(self, a: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Any:
        if weights is None:
            return self._np_mean(a, axis, keepdims)
        return self._np_sum(a * weights, axis, keepdims) / self._np_sum(weights, axis, keepdims)

    def _np_var(self, a: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, **rest: Any) -> Any:
        _no_more("var", rest)
        off = a - self._np_mean(a, axis, True)
        return self._np_sum(off * off, axis, keepdims) / float(_terms(self._enclosure(a).value, axis) - ddof)

    def _np_std(self, a: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, **rest: Any) -> Any:
        return np.sqrt(self._np_var(a, axis, ddof, keepdims, **rest))

    def _np_prod(self, a: Any, axis: Any = None, keepdims: bool = False, **rest: Any) -> Any:
        _no_more("prod", rest)
        held = self._enclosure(a)
        axes = range(held.value.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        out = self._made(held)
        for one in sorted((x % held.value.ndim for x in axes), reverse=True):
            parts = [out[(slice(None),) * one + (slice(i, i + 1),)] for i in range(out.shape[one])]
            out = math.prod(parts[1:], start=parts[0])
            out = out if keepdims else out.squeeze(one)
        return out

    def _np_cumsum(self, a: Any, axis: Any = None) -> Any:
        held = self._enclosure(a)
        terms = held.value.size if axis is None else held.value.shape[axis]
        return self._product(lambda v: np.cumsum(v, axis), [a], terms)

    def _np_trace(self, a: Any) -> Any:
        return self._np_sum(np.diagonal(a), -1)

    def _np_diff(self, a: Any, n: int = 1, axis: int = -1) -> Any:
        for _ in range(n):
            ahead = [slice(None)] * a.ndim
            behind = list(ahead)
            ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
            a = a[tuple(ahead)] - a[tuple(behind)]
        return a

    def _np_dot(self, a: Any, b: Any) -> Any:
        first = self._enclosure(a).value
        return self._product(np.dot, [a, b], first.shape[-1] if first.ndim else 1)

    def _np_inner(self, a: Any, b: Any) -> Any:
        return self._product(np.inner, [a, b], self._enclosure(a).value.shape[-1])

    def _np_vdot(self, a: Any, b: Any) -> Any:
        return self._product(np.vdot, [a, b], self._enclosure(a).value.size)

    def _np_outer(self, a: Any, b: Any) -> Any:
        return self._product(np.outer, [a, b], 1)

    def _np_kron(self, a: Any, b: Any) -> Any:
        return self._product(np.kron, [a, b], 1)

    def _np_tensordot(self, a: Any, b: Any, axes: Any = 2) -> Any:
        x, y = self._enclosure(a).value, self._enclosure(b).value
        terms = math.prod(x.shape[-axes:]) if isinstance(axes, int) and axes else max(x.size, y.size)
        return self._product(lambda u, v: np.tensordot(u, v, axes), [a, b], terms)

    def _np_convolve(self, a: Any, v: Any, mode: Any = "full") -> Any:
        terms = min(self._enclosure(a).value.size, self._enclosure(v).value.size)
        return self._product(lambda x, y: np.convolve(x, y, mode), [a, v], terms)

    def _np_einsum(self, formula: Any, *operands: Any, **_: Any) -> Any:
        if not isinstance(formula, str):
            raise CannotBound("calls einsum without a formula")
        terms = summed_terms(formula, [self._enclosure(o).value.shape for o in operands])
        return self._product(lambda *v: contracted(formula, *v), operands, terms)

    def _np_zeros_like(self, a: Any, shape: Any = None, **_: Any) -> Any:
        return self._filled(a, 0.0, shape)

    def _np_empty_like(self, a: Any, shape: Any = None, **_: Any) -> Any:
        return self._filled(a, 0.0, shape)

    def _np_ones_like(self, a: Any, shape: Any = None, **_: Any) -> Any:
        return self._filled(a, 1.0, shape)

    def _np_full_like(self, a: Any, fill_value: Any, shape: Any = None, **_: Any) -> Any:
        return self._filled(a, float(fill_value), shape)

    def _filled(self, a: Any, fill: float, shape: Any) -> Enclosed:
        like = self._enclosure(a).value
        return self._made(exactly(np.full(like.shape if shape is None else shape, fill, dtype=like.dtype)))

    def _np_nan_to_num(self, x: Any, nan: float = 0.0, **rest: Any) -> Any:
        _no_more("nan_to_num", {k: v for k, v in rest.items() if k != "copy"})
        return np.where(np.isnan(x), nan, x)

    def _np_any(self, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
        return self._ordered(lambda v: np.any(v, axis=axis, keepdims=keepdims), a)

    def _np_all(self, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
        return self._ordered(lambda v: np.all(v, axis=axis, keepdims=keepdims), a)

    def _ordered(self, function: Any, a: Any) -> Any:
        return self._made(moved.apply(function, [self._enclosure(a)], lambda f, arrays: np.asarray(f(arrays[0]))))


def _no_more(name: str, rest: Mapping[str, Any]) -> None:
    given = [k for k, v in rest.items() if v is not None and v is not np._NoValue]
    if given:
        raise CannotBound(f"calls {name} with {', '.join(given)}")


def _terms(value: Values, axis: Any) -> int:
    axes = range(value.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return max(int(math.prod(value.shape[a] for a in axes)), 1)


def _replaced(old: Values, new: Values, at: Any) -> Values:
    made = np.array(old, dtype=np.result_type(old, new))
    made[at] = new
    return made


def _found(arguments: Any) -> list[Enclosure]:
    """The arrays with error among arguments, in order."""
    if isinstance(arguments, Enclosed):
        return [arguments.enclosure]
    listed = arguments.values() if isinstance(arguments, Mapping) else arguments
    return [e for a in listed for e in _found(a)] if isinstance(arguments, (list, tuple, Mapping)) else []


def _swapped(arguments: Any, by: Callable[[Enclosure], Any]) -> Any:
    """Arguments with something else in the place of every array with error."""
    if isinstance(arguments, Enclosed):
        return by(arguments.enclosure)
    if isinstance(arguments, (list, tuple)):
        return type(arguments)(_swapped(a, by) for a in arguments)
    if isinstance(arguments, dict):
        return {k: _swapped(v, by) for k, v in arguments.items()}
    return arguments
