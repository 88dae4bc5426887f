"""Kernel arguments as they are typed: `a=random:f16[256,256]`, `n=1024`, `map=tensormap:a box=64,128 swizzle=128B`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygpu.files.array import array_of
from tinygpu.files.reading import read_file
from tinygpu.ptx.emulator import DeviceBuffer, SparseBuffer, TensorMap
from tinygpu.ptx.emulator.source.syntax import Function, Variable

Buffer = DeviceBuffer | SparseBuffer


class ArgumentError(ValueError):
    """An argument that cannot be read, or does not fit the kernel; the sentence says which and what would do."""


# Bytes of an array in a file.
_ARRAY_BYTES = 2**34
DTYPES: Mapping[str, Any] = {
    "f64": np.float64, "f32": np.float32, "tf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "ue8m0": ml_dtypes.float8_e8m0fnu,
    "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip
_ALIASES = {f"i{bits}": f"s{bits}" for bits in (8, 16, 32, 64)} | {f"b{bits}": f"u{bits}" for bits in (8, 16, 32, 64)}
_INTEGER_LISTS = ("box", "dims", "strides", "element_strides", "pixel_box_lower", "pixel_box_upper")
_INTEGERS = ("channels_per_pixel", "pixels_per_column")
_WORDS = ("dtype", "swizzle", "interleave", "oob", "l2_promotion", "mode")
_ARRAY = re.compile(r"(?P<fill>\w+):(?P<dtype>\w+)\[(?P<shape>[\d,_ ]*)\](?:\[(?P<low>-?\d+)\.\.(?P<high>-?\d+)\])?")
_NAMED = re.compile(r"(?P<name>[A-Za-z_$][\w$.]*)=(?P<spec>.*)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|\d[\d_]*)")


@dataclass(frozen=True, slots=True)
class Typed:
    """One argument as it was typed: its name, "" where it has none, and what it is."""

    name: str
    spec: str


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """Arguments ready for `emulate`.

    values   one per parameter of the kernel, in order
    buffers  arrays that only tensor maps reach are in here as well, by name
    """

    values: tuple[Any, ...]
    buffers: Mapping[str, Buffer]

    def array(self, name: str) -> NDArray[Any]:
        """The array of a named argument."""
        found = self.buffers.get(name)
        if isinstance(found, DeviceBuffer):
            return found.array
        known = ", ".join(n for n, b in self.buffers.items() if isinstance(b, DeviceBuffer)) or "none"
        raise ArgumentError(f"no argument called {name!r} is an array; there are {known}")


def read_arguments(function: Function, words: Sequence[str], seed: int = 0) -> Arguments:
    """The arguments of a kernel.

    words  as typed, with or without a name in front; a name that is a parameter's puts the argument there, all others
           take the remaining parameters in order
    seed   of random contents

    Raises ArgumentError where one cannot be read, is missing, or is too many.
    """
    typed = [_split(word) for word in words]
    names = [t.name for t in typed if t.name]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ArgumentError(f"--arg gives {twice} twice")
    placed = _place(function, typed)
    buffers: dict[str, Buffer] = {}
    values: dict[str, Any] = {}
    # Those that speak of other arguments come after the ones they speak of.
    for refers in (False, True):
        for position, (parameter, argument) in enumerate(placed):
            if _refers(argument.spec, names) is refers:
                name = argument.name or parameter.name
                value = _read(argument, name, parameter, np.random.default_rng([seed, position]), buffers)
                values[parameter.name] = value
                buffer = value.buffer if isinstance(value, TensorMap) else value
                if isinstance(buffer, (DeviceBuffer, SparseBuffer)):
                    buffers.setdefault(name, buffer)
    return Arguments(tuple(values[p.name] for p in function.parameters), buffers)


def described(parameter: Variable) -> str:
    """A parameter with its type and size, in words."""
    if parameter.size_bytes == 8 and parameter.type_name in ("u64", "b64", "s64"):
        return f"{parameter.name} (.{parameter.type_name}: 8 bytes, a pointer or a number)"
    size = parameter.size_bytes
    return f"{parameter.name} (.{parameter.type_name}: {size} byte{'s' if size > 1 else ''})"


def _split(word: str) -> Typed:
    named = _NAMED.fullmatch(word.strip())
    found = Typed("", word.strip()) if named is None else Typed(named["name"], named["spec"].strip())
    if not found.spec:
        raise ArgumentError(f"--arg takes name=value, as in a=zeros:f32[256], not {word!r}")
    return found


def _place(function: Function, typed: Sequence[Typed]) -> list[tuple[Variable, Typed]]:
    by_name = {p.name: p for p in function.parameters}
    named = {t.name: t for t in typed if t.name in by_name}
    rest = [t for t in typed if t.name not in by_name]
    free = [p for p in function.parameters if p.name not in named]
    if len(rest) != len(free):
        wanted = ", ".join(described(p) for p in function.parameters) or "none"
        count = len(function.parameters)
        takes = f"{function.name} takes {count} argument{'' if count == 1 else 's'}: {wanted}"
        if len(rest) > len(free):
            raise ArgumentError(f"{takes}; {len(typed)} were given")
        missing = ", ".join(p.name for p in free[len(rest) :])
        raise ArgumentError(f"{takes}; give {missing} with --arg, as in --arg {free[len(rest)].name}=...")
    left = iter(rest)
    return [(p, named[p.name] if p.name in named else next(left)) for p in function.parameters]


def _refers(spec: str, names: Sequence[str]) -> bool:
    kind, _, rest = spec.partition(":")
    return kind in ("tensormap", "pointer") and re.split(r"[ +]", rest, maxsplit=1)[0] in names


def _read(
    argument: Typed, name: str, parameter: Variable, rng: np.random.Generator, buffers: Mapping[str, Buffer]
) -> Any:
    spec = argument.spec
    kind = spec.partition(":")[0]
    if spec == "null":
        return 0
    if kind == "tensormap":
        return _tensor_map(name, spec, rng, buffers)
    if kind == "pointer":
        return _pointer(name, spec, buffers)
    if kind == "sparse":
        return _sparse(name, spec, rng)
    if kind == "bytes":
        return _raw(name, spec)
    if spec.endswith(".npy"):
        return DeviceBuffer(_load(name, spec), name=name)
    if "[" in spec:
        return _filled(name, spec, rng)
    return _scalar(name, spec, parameter)


def _dtype(name: str, text: str) -> np.dtype[Any]:
    known = DTYPES.get(_ALIASES.get(text, text))
    if known is None:
        raise ArgumentError(f"{name}: there is no type {text!r}; there are {', '.join(DTYPES)}")
    found: np.dtype[Any] = np.dtype(known)
    return found


def _scalar(name: str, spec: str, parameter: Variable) -> Any:
    kind, colon, number = spec.rpartition(":")
    integer = _NUMBER.fullmatch(number)
    try:
        value: int | float = int(number.replace("_", ""), 0) if integer else float(number)
    except ValueError:
        raise ArgumentError(
            f"{name}: {spec!r} is no argument; arrays are written random:f16[256,256], scalars f32:0.5 or 1024, files "
            "x.npy, tensor maps tensormap:a box=64,128"
        ) from None
    if not colon:
        if isinstance(value, float) and parameter.type_name[0] in "us":
            raise ArgumentError(f"{described(parameter)} takes a whole number, not {spec}")
        return value
    dtype = _dtype(name, kind)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not integer or not limits.min <= value <= limits.max:
            raise ArgumentError(f"{name}: {number} is no {kind}, which holds {limits.min} to {limits.max}")
    return np.asarray(value, np.float64 if dtype.kind not in "iu" else dtype).astype(dtype)[()]


def _filled(name: str, spec: str, rng: np.random.Generator) -> DeviceBuffer:
    found = _ARRAY.fullmatch(spec)
    if found is None:
        raise ArgumentError(
            f"{name}: {spec!r} is no array; arrays are written random:f16[256,256], with zeros, ones, arange, empty or "
            "integers:f16[256][-3..3] in front"
        )
    array = _contents(name, found["fill"], _dtype(name, found["dtype"]), _shape(name, found["shape"]), rng, found)
    return DeviceBuffer(array, initialised=found["fill"] != "empty", name=name)


def _shape(name: str, text: str) -> tuple[int, ...]:
    words = [word.strip().replace("_", "") for word in text.split(",")]
    if not all(words) or any(int(word) == 0 for word in words):
        raise ArgumentError(f"{name}: [{text}] is no shape; shapes are sizes from 1 on, as in [256,256]")
    return tuple(int(word) for word in words)


def _contents(
    name: str, fill: str, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator,
    found: re.Match[str],
) -> NDArray[Any]:  # fmt: skip
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    if (found["low"] is not None) != (fill == "integers"):
        raise ArgumentError(
            f"{name}: {found.string!r} says a range of numbers where it must not, or none where it must: only integers "
            "take one, as in integers:f16[256][-3..3]"
        )
    fills: Mapping[str, Callable[[], NDArray[Any]]] = {
        "zeros": lambda: np.zeros(shape, dtype),
        "empty": lambda: np.zeros(shape, dtype),
        "ones": lambda: np.ones(shape, dtype),
        "arange": lambda: np.arange(int(np.prod(shape))).astype(dtype).reshape(shape),
        "integers": lambda: rng.integers(int(found["low"]), int(found["high"]), shape, endpoint=True).astype(dtype),
        "random": lambda: _random(dtype, shape, rng),
    }
    if fill not in fills:
        raise ArgumentError(f"{name}: nothing fills an array with {fill!r}; there are {', '.join(fills)}")
    if fill == "integers":
        low, high = int(found["low"]), int(found["high"])
        if low > high or (limits is not None and not limits.min <= low <= high <= limits.max):
            raise ArgumentError(f"{name}: {found['dtype']} holds no integers from {low} to {high}")
    try:
        return fills[fill]()
    except (MemoryError, ValueError):
        raise ArgumentError(
            f"{name}: {found.string!r} does not fit this machine's memory; a sparse array does, as in "
            f"sparse:{found['dtype']}[{found['shape']}] windows=0..64,-64.."
        ) from None


def _random(dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    """Whole numbers of the type's range, powers of two from 1/8 to 8 for scales, normally distributed floats."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype == ml_dtypes.float8_e8m0fnu:
        return np.exp2(rng.integers(-3, 3, shape, endpoint=True)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _load(name: str, spec: str) -> NDArray[Any]:
    """`x.npy`, or `bf16:x.npy` to take its bytes as another type."""
    kind, colon, path = spec.rpartition(":")
    dtype = None if not colon or kind not in {**DTYPES, **_ALIASES} else _dtype(name, kind)
    array = load_array(Path(path if dtype is not None else spec))
    if not array.flags.c_contiguous and not array.flags.f_contiguous:
        array = np.ascontiguousarray(array)
    if dtype is None:
        return array
    if array.dtype.itemsize != dtype.itemsize:
        raise ArgumentError(f"{name}: {path} has elements of {array.dtype.itemsize} bytes, {kind} has {dtype.itemsize}")
    return array.view(dtype)


def load_array(path: Path) -> NDArray[Any]:
    """The array in a .npy file."""
    return array_of(read_file(path, _ARRAY_BYTES), str(path))


def _raw(name: str, spec: str) -> bytes:
    text = spec.partition(":")[2]
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ArgumentError(f"{name}: {text!r} are no bytes; they are written in hexadecimal, as bytes:00ff") from None


def _pointer(name: str, spec: str, buffers: Mapping[str, Buffer]) -> DeviceBuffer:
    """`pointer:a` or `pointer:a+256`: into the array of another argument, `+` in bytes."""
    target, plus, offset = spec.partition(":")[2].partition("+")
    found = buffers.get(target)
    if not isinstance(found, DeviceBuffer) or (plus and not offset.isdigit()):
        raise ArgumentError(
            f"{name}: {spec!r} is no pointer; pointers are written pointer:a or pointer:a+256, where a is an argument "
            "with an array"
        )
    return DeviceBuffer(found.array, offset=int(offset or 0), initialised=found.initialised, name=found.name)


def _sparse(name: str, spec: str, rng: np.random.Generator) -> SparseBuffer:
    """`sparse:f32[2147483648] windows=0..64,-64.. fill=random`: of a huge array only these elements exist."""
    head, *words = spec.split()
    found = re.fullmatch(r"sparse:(?P<dtype>\w+)\[(?P<shape>[\d,_ ]+)\](?P<low>)(?P<high>)", head)
    options = _options(name, words, ("windows", "fill"))
    if found is None or "windows" not in options:
        raise ArgumentError(
            f"{name}: {spec!r} is no sparse array; they are written sparse:f32[2147483648] windows=0..64,-64.. with "
            "the elements that exist"
        )
    dtype = _dtype(name, found["dtype"])
    elements = int(np.prod([int(n) for n in _shape(name, found["shape"])], dtype=object))
    fill = options.get("fill", "zeros")
    if fill not in ("zeros", "ones", "random"):
        raise ArgumentError(f"{name}: windows of a sparse array are filled with zeros, ones or random, not {fill!r}")
    ranges = sorted(_window(name, text, elements) for text in options["windows"].split(","))
    for (_, end), (start, _) in pairwise(ranges):
        if start < end:
            raise ArgumentError(f"{name}: the windows {options['windows']} overlap")
    dense = f"{fill}:{found['dtype']}"
    regions = {
        start * dtype.itemsize: _filled(name, f"{dense}[{end - start}]", rng).array for start, end in ranges
    }
    return SparseBuffer(elements * dtype.itemsize, regions, name=name)


def _window(name: str, text: str, elements: int) -> tuple[int, int]:
    found = re.fullmatch(r"(-?\d+)\.\.(-?\d*)", text)
    start, end = (0, 0) if found is None else (int(found[1]), int(found[2] or elements))
    start, end = (n + elements if n < 0 else n for n in (start, end))
    if not 0 <= start < end <= elements:
        raise ArgumentError(
            f"{name}: {text!r} is no window of {elements} elements; windows are written 0..64, or -64.. for the last 64"
        )
    return start, end


def _tensor_map(name: str, spec: str, rng: np.random.Generator, buffers: Mapping[str, Buffer]) -> TensorMap:
    """`tensormap:a box=64,128 swizzle=128B`, over another argument or over an array that is written in its place."""
    head, *words = spec.split()
    target = head.partition(":")[2]
    options = _options(name, words, (*_INTEGER_LISTS, *_INTEGERS, *_WORDS))
    given: dict[str, Any] = {}
    for key, text in options.items():
        if key in _WORDS:
            given[key] = text
            continue
        if not re.fullmatch(r"-?\d+(,-?\d+)*", text) or (key in _INTEGERS and "," in text):
            raise ArgumentError(f"{name}: {key} of a tensor map takes whole numbers, as in {key}=64, not {text!r}")
        numbers = [int(n) for n in text.split(",")]
        given[key] = numbers[0] if key in _INTEGERS else numbers
    array: Buffer | None = buffers.get(target)
    if array is None:
        if target.endswith(".npy"):
            array = DeviceBuffer(_load(name, target), name=name)
        elif "[" in target:
            array = _filled(name, target, rng)
        else:
            known = ", ".join(buffers) or "none"
            raise ArgumentError(
                f"{name}: there is no argument {target!r} with an array for a tensor map; there are {known}"
            )
    return TensorMap(array, given.pop("box", None), **given)


def _options(name: str, words: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in known or not equals or not value:
            raise ArgumentError(f"{name}: {word!r} is no option here; there are {', '.join(f'{k}=' for k in known)}")
        out[key] = value
    return out
