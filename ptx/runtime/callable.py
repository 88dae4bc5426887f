"""A kernel as a function: arrays in, arrays out.

What depends on the arrays (a check of their types, shapes and strides, the argument buffer, tensor maps, the launch
configuration) is prepared once per set of arrays and kept; a call with arrays that were seen before is a look-up and
one call of the driver.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygpu.distributions import Distribution
from tinygpu.ptx.runtime.arrays import Reader, View, reader_of
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import Context, Memory, Workspaces
from tinygpu.ptx.runtime.errors import CudaError, WrongArray
from tinygpu.ptx.runtime.launch import Launch, Tensor
from tinygpu.ptx.runtime.outputs import new_array
from tinygpu.ptx.runtime.sequence import ArgumentSequence, LoadedSequence, Text, load

# Sets of arrays that are kept prepared; the oldest gives way.
MOST_PREPARED = 256


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel takes.

    title    how errors call it: the machine
    inputs   tensors that it reads, in the order of a call; those that it also writes are among them
    outputs  tensors that it only writes
    scalars  numbers, given by name
    """

    title: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scalars: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """One set of arrays, ready to launch.

    calls       (configuration, function, address of the arguments) of each launch
    staged      stand-ins for host arrays, by position
    workspaces  kept as long as the launch knows their addresses
    values      what tensors and scalars may hold, by name
    """

    arguments: ArgumentSequence
    config: Any
    loaded: LoadedSequence
    calls: tuple[tuple[Any, Any, int], ...]
    staged: tuple[tuple[int, Tensor, Memory], ...]
    workspaces: tuple[Memory, ...]
    stream: int
    values: Mapping[str, Distribution]


class CallableKernel:
    """`kernel(a, b)` or `kernel(a, b, out=c)`: runs a kernel on arrays.

    Arrays are of PyTorch, CuPy, JAX, anything with DLPack or `__cuda_array_interface__`, or NumPy (then the call copies
    them to the GPU and back, and waits). Without `out` the result is a new array of the inputs' library (of our own,
    `DeviceArray`, for JAX and others). A call launches on `stream` (a number or an object that has one), by default on
    PyTorch's or CuPy's current stream, else on the default stream, and does not wait.
    """

    def __init__(
        self,
        signature: Signature,
        launch_for: Callable[[Mapping[str, View]], Launch],
        context: Callable[[], Context],
        ptx: bytes,
        cubin: bytes | None = None,
        then: Sequence[Text] = (),
    ) -> None:
        """
        then        PTX and machine code of each launch that follows the first
        launch_for  the launch for a set of arrays, by tensor; raises WrongArray for those that do not fit
        context     opens the GPU; asked once, with the first call
        """
        self.signature = signature
        self._launch_for = launch_for
        self._open = context
        self._texts: tuple[Text, ...] = ((ptx, cubin), *then)
        self._lock = threading.Lock()
        self._readers: dict[type, Reader] = {}
        self._prepared: dict[Any, _Prepared] = {}
        self._planned: dict[Any, Launch] = {}
        self._loaded: dict[int, LoadedSequence] = {}
        self._workspaces: dict[int, Workspaces] = {}
        self._context: Context | None = None
        self._count = len(signature.inputs)
        self._scalars = frozenset(signature.scalars)
        self._set_current: Callable[[Any], Any] | None = None
        self._launch: Callable[..., Any] | None = None

    @property
    def context(self) -> Context:
        """The GPU; raises GpuUnavailable where there is none."""
        if self._context is None:
            self._context = self._open()
            module = self._context.driver.module
            self._set_current, self._launch = module.cuCtxSetCurrent, module.cuLaunchKernelEx
        return self._context

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None, **scalars: Any) -> Any:
        if len(arrays) != self._count or scalars.keys() != self._scalars:
            self._refuse_call(len(arrays), scalars)
        context = self._context or self.context
        if out is None or type(out) in (tuple, list, dict):
            out, arrays = self._outputs(arrays, out)
        else:
            if len(self.signature.outputs) != 1:
                self._refuse_out()
            arrays = (*arrays, out)
        readers = self._readers
        try:
            keys = [readers[type(a)].key(a) for a in arrays]
        except KeyError:
            keys = [self._reader(a, i).key(a) for i, a in enumerate(arrays)]
        number = self._stream(arrays[0], stream)
        key = (number, *keys)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(key, arrays, number, stream is not None)
        if self._set_current is None or self._launch is None:
            raise RuntimeError("the driver's functions were not bound when the GPU was opened")
        self._set_current(context.handle)
        if prepared.staged or scalars or prepared.arguments.fills:
            with self._lock:
                self._run_slowly(prepared, arrays, scalars)
            return out
        for config, function, address in prepared.calls:
            status = self._launch(config, function, address, 0)[0]
            if status:
                raise CudaError("cuLaunchKernelEx", context.driver.code(status))
        return out

    def _run_slowly(self, prepared: _Prepared, arrays: tuple[Any, ...], scalars: Mapping[str, Any]) -> None:
        """A launch whose numbers and banks are written first, and whose host arrays are copied there and back."""
        held = {tensor.name: arrays[position] for position, tensor, _ in prepared.staged if tensor.access != "out"}
        for name, values in prepared.values.items():
            given = held.get(name, scalars.get(name))
            if given is not None and (why := values.fault(np.asarray(given))):
                raise WrongArray(f"{self.signature.title}: {name}{why}")
        for name, value in scalars.items():
            prepared.arguments.set_scalar(name, value)
        for position, tensor, memory in prepared.staged:
            if tensor.access != "out":
                memory.write(_host_bytes(arrays[position], tensor))
        prepared.loaded.run(prepared.arguments, prepared.config)
        if prepared.staged:
            driver = prepared.loaded.context.driver
            driver.call("cuStreamSynchronize", driver.module.CUstream(prepared.stream))
        for position, tensor, memory in prepared.staged:
            if tensor.access != "in":
                array = arrays[position]
                array[...] = np.ndarray(array.shape, array.dtype, memory.read().data, 0, array.strides)

    def _outputs(self, arrays: tuple[Any, ...], out: Any) -> tuple[Any, tuple[Any, ...]]:
        """(what the call returns, all arrays) where the outputs are new, or several."""
        names = self.signature.outputs
        if not names:
            if out is not None:
                self._refuse_out()
            written = arrays  # what it writes is among what it reads
            return (written[0] if len(written) == 1 else None), arrays
        if out is None:
            launch = self._plan(arrays)
            library = self._readers[type(arrays[0])].library
            made = tuple(new_array(library, self.context, launch.tensor(name)) for name in names)
            return (made[0] if len(made) == 1 else dict(zip(names, made, strict=True))), (*arrays, *made)
        if isinstance(out, dict):
            if out.keys() != set(names):
                self._refuse_out()
            return out, (*arrays, *(out[name] for name in names))
        if len(out) != len(names):
            self._refuse_out()
        return out, (*arrays, *out)

    def _plan(self, arrays: tuple[Any, ...]) -> Launch:
        """The launch for inputs whose outputs do not exist yet."""
        key = tuple(self._reader(a, i).key(a) for i, a in enumerate(arrays))
        launch = self._planned.get(key)
        if launch is None:
            launch = self._launch_for(self._views(arrays))
            while len(self._planned) >= MOST_PREPARED:
                del self._planned[next(iter(self._planned))]
            self._planned[key] = launch
        return launch

    def _views(self, arrays: tuple[Any, ...]) -> dict[str, View]:
        names = (*self.signature.inputs, *self.signature.outputs)
        return {n: self._reader(a, i).view(a, n) for i, (n, a) in enumerate(zip(names, arrays, strict=False))}

    def _reader(self, array: Any, position: int) -> Reader:
        found = self._readers.get(type(array))
        if found is None:
            names = (*self.signature.inputs, *self.signature.outputs)
            found = self._readers[type(array)] = reader_of(array, names[position])
        return found

    def _stream(self, first: Any, given: Any) -> int:
        """The number of the stream to launch on."""
        if given is not None:
            return stream_number(given)
        library = self._readers[type(first)].library
        if library == "torch":
            return int(_torch_stream(first.device.index))
        if library == "cupy":
            return int(importlib.import_module("cupy").cuda.get_current_stream().ptr)
        return 0

    def _prepare(self, key: Any, arrays: tuple[Any, ...], stream: int, stream_given: bool) -> _Prepared:
        context = self.context
        context.make_current()
        views = self._views(arrays)
        launch = self._launch_for(views)
        if not stream_given and stream == 0:
            stream = next((v.stream for v in views.values() if v.stream), 0)
        _check_places(context, views, launch)
        staged, addresses = [], {}
        for position, (name, view) in enumerate(views.items()):
            addresses[name] = view.address
            if view.host is not None:
                tensor = launch.tensor(name)
                stand_in = context.allocate(tensor.extent_bytes, name)
                staged.append((position, tensor, stand_in))
                addresses[name] = stand_in.address
        loaded = self._load(launch, stream)
        # launches on one stream follow each other, and share; those on another may run beside them
        spaces = self._workspaces.setdefault(stream, Workspaces(context))
        memory = tuple(spaces.memory(w) for w in loaded.workspaces)
        addresses |= {w.name: m.address for w, m in zip(loaded.workspaces, memory, strict=True)}
        arguments, config = loaded.arguments(addresses), loaded.config(stream)
        calls, values = loaded.calls(arguments, config), dict(launch.values)
        prepared = _Prepared(arguments, config, loaded, calls, tuple(staged), memory, stream, values)
        with self._lock:
            while len(self._prepared) >= MOST_PREPARED:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[key] = prepared
        return prepared

    def _load(self, launch: Launch, stream: int) -> LoadedSequence:
        """The kernels, loaded once; other problems than the first have grids of their own.

        One with banks is loaded for each stream: launches on another may run beside, with other contents.
        """
        of = stream if any(each.banks for each in (launch, *launch.then)) else 0
        if of not in self._loaded:
            self._loaded[of] = load(self.context, launch, self._texts)
        return self._loaded[of].for_launch(launch)

    def _refuse_call(self, count: int, scalars: Mapping[str, Any]) -> None:
        s = self.signature
        if count != self._count:
            raise WrongArray(f"{s.title} takes {_listed(s.inputs, 'array')}; {count} were given")
        missing = [n for n in s.scalars if n not in scalars]
        if missing:
            raise WrongArray(f"{s.title} needs the number {missing[0]}: give {missing[0]}=...")
        unknown = next(n for n in scalars if n not in s.scalars)
        known = f"it takes {', '.join(s.scalars)}" if s.scalars else "it takes none"
        raise WrongArray(f"{s.title} has no number {unknown}; {known}")

    def _refuse_out(self) -> None:
        s = self.signature
        if not s.outputs:
            raise WrongArray(f"{s.title} writes into its inputs and takes no out=...")
        raise WrongArray(f"{s.title} gives {_listed(s.outputs, 'array')}: give out=... for all of them")


def stream_number(given: Any) -> int:
    """The number of a stream: as such, or of an object with `__cuda_stream__`, `cuda_stream`, `ptr` or `number`."""
    if isinstance(given, int):
        return given
    protocol = getattr(given, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for attribute in ("cuda_stream", "ptr", "number"):
        if hasattr(given, attribute):
            return int(getattr(given, attribute))
    raise WrongArray(f"a stream is a number or a stream of PyTorch, CuPy or ours, not {given!r}")


def _torch_stream(index: int) -> int:
    torch = importlib.import_module("torch")
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # what Triton calls, in a tenth of the time
    return int(quick(index) if quick is not None else torch.cuda.current_stream(index).cuda_stream)


def _listed(names: tuple[str, ...], what: str) -> str:
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'} ({', '.join(names)})"


def _check_places(context: Context, views: Mapping[str, View], launch: Launch) -> None:
    """Refuses arrays that are elsewhere than on this GPU, and results that are read-only or lie over other arrays."""
    driver, ordinal = context.driver, context.limits.ordinal
    spans: dict[str, tuple[int, int]] = {}
    for name, view in views.items():
        tensor = launch.tensor(name)
        if tensor.access != "in" and view.read_only:
            raise WrongArray(f"{name} is read-only, and the kernel writes it")
        if view.host is None:
            gpu = _gpu_of(driver, view.address) if view.gpu is None else view.gpu
            if gpu is None:
                raise WrongArray(f"{name} is not in GPU memory; move it there first")
            if gpu != ordinal:
                raise WrongArray(f"{name} is on GPU {gpu}, and the kernel runs on GPU {ordinal}")
        spans[name] = (view.address, view.address + tensor.extent_bytes)
    for name, (start, end) in spans.items():
        for other, (begin, stop) in spans.items():
            same_kind = (views[name].host is None) == (views[other].host is None)
            written = launch.tensor(name).access != "in"
            if name != other and written and same_kind and start < stop and begin < end:
                raise WrongArray(f"{name} overlaps {other} in memory; give an array of its own for {name}")


def _gpu_of(driver: Driver, address: int) -> int | None:
    attribute = driver.enum("CUpointer_attribute", "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL")
    try:
        return int(driver.call("cuPointerGetAttribute", attribute, address))
    except CudaError:
        return None


def _host_bytes(array: Any, tensor: Tensor) -> Any:
    """The bytes from an array's first element to its last, gaps included."""
    storage: Any = (ctypes.c_char * tensor.extent_bytes).from_address(array.ctypes.data)
    return np.frombuffer(storage, dtype=np.uint8)
