"""A CUDA driver without a GPU: the functions of cuda.bindings.driver that the runtime calls, over the PTX emulator.

Kernels run in the emulator on arrays that stand for device memory; time is a clock of its own that each launch moves.
Structures and enumerations are those of cuda.bindings. Comments in a kernel's PTX say how long it takes and what
befalls it (`fake_fates`); one in which the emulator finds a fault ends with CUDA_ERROR_ILLEGAL_ADDRESS.

As with a real driver, nothing works any more in a process whose context is lost; and a stream that does not wait for
the null stream must not touch what copies and fills there may still be writing: a launch that does raises `Unordered`.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cuda.bindings import driver as real
from fake_fates import befall, seconds_of
from fake_launches import attributes_of, cluster_of, parameters_of
from fake_maps import described_map, emulated_map, numbered_map

from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, PtxSyntaxError, TensorMap, emulate
from tinygpu.ptx.emulator import LaunchError as MapError
from tinygpu.ptx.emulator.run.prepared import find_entry
from tinygpu.ptx.emulator.source.parser import parse

OK = real.CUresult.CUDA_SUCCESS
FIRST_ADDRESS = 0x6F00_0000_0000


class Unordered(RuntimeError):
    """A launch on a stream of its own that reads or writes memory which the null stream has not finished with."""


@dataclass(slots=True)
class Allocation:
    address: int
    bytes: np.ndarray[Any, Any]


@dataclass(slots=True)
class Loaded:
    """A module with one kernel; it is also its function."""

    ptx: str
    name: str
    attributes: dict[str, int] = field(default_factory=dict)
    variables: dict[str, int] = field(default_factory=dict)  # address of each that was asked for


@dataclass(slots=True)
class Captured:
    work: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class Stamp:
    seconds: float | None = None


@dataclass
class FakeCuda:
    """One GPU.

    cc            compute capability
    sms           few, so that persistent kernels go round
    memory_bytes  of the device
    noise         relative standard deviation of a launch's time
    drift         by how much time stretches with every launch
    calls         every call, in order: (function, arguments)
    emulating     False: launches only move the clock
    refusal       what it calls machine code that it does not take
    aligned_maps  it writes tensor maps to multiples of 128 bytes only, where the bindings put theirs anywhere
    late          launches never fail: whatever is called next says what befell them
    """

    name: str = "NVIDIA H200"
    cc: tuple[int, int] = (9, 0)
    sms: int = 4
    l2_bytes: int = 1 << 20
    smem_bytes: int = 232_448
    static_smem_bytes: int = 0
    memory_bytes: int = 1 << 28
    noise: float = 0.01
    drift: float = 0.0
    seed: int = 0
    gpus: int = 1
    emulating: bool = True
    refusal: str = "CUDA_ERROR_NO_BINARY_FOR_GPU"
    aligned_maps: bool = False
    late: bool = False
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    allocations: dict[int, Allocation] = field(default_factory=dict)
    cubins: dict[bytes, bytes] = field(default_factory=dict)
    maps: list[dict[str, Any]] = field(default_factory=list)
    now: float = 0.0
    lost: str = ""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.next_address = FIRST_ADDRESS
        self.next_handle = 1
        self.handles: dict[int, Any] = {}
        self.capturing: dict[int, Captured] = {}
        self.own_streams: set[int] = set()
        self.unfinished: set[int] = set()  # allocations that the null stream may still be writing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cu") and not name.startswith("cuuint"):
            raise AttributeError(f"the fake driver has no {name}")
        return getattr(real, name)

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or not callable(found):
            return found

        def recorded(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            if self.lost and name != "cuGetErrorName":
                return (getattr(real.CUresult, self.lost), *[None] * 4)
            return found(*arguments)

        return recorded

    def count(self, function: str) -> int:
        return sum(name == function for name, _ in self.calls)

    # -- devices and contexts --------------------------------------------------------------------------------------
    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDriverGetVersion(self) -> Any:
        return OK, 13000

    def cuDeviceGetCount(self) -> Any:
        return OK, self.gpus

    def cuDeviceGet(self, ordinal: int) -> Any:
        return OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return OK, self.name.encode().ljust(length, b"\0")

    def cuDeviceGetPCIBusId(self, length: int, device: int) -> Any:
        return OK, b"0000:00:00.0".ljust(length, b"\0")

    def cuDeviceTotalMem(self, device: int) -> Any:
        return OK, self.memory_bytes

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        known = {
            "COMPUTE_CAPABILITY_MAJOR": self.cc[0], "COMPUTE_CAPABILITY_MINOR": self.cc[1],
            "MULTIPROCESSOR_COUNT": self.sms, "L2_CACHE_SIZE": self.l2_bytes,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": self.smem_bytes, "MAX_THREADS_PER_BLOCK": 1024,
            "COOPERATIVE_LAUNCH": 1,
        }  # fmt: skip
        return OK, known[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return OK, "context"

    def cuCtxSetCurrent(self, context: Any) -> Any:
        return (OK,)

    def cuCtxSynchronize(self) -> Any:
        self.unfinished.clear()
        return (OK,)

    # -- memory ----------------------------------------------------------------------------------------------------
    def cuMemGetInfo(self) -> Any:
        return OK, self.memory_bytes - sum(a.bytes.nbytes for a in self.allocations.values()), self.memory_bytes

    def cuMemAlloc(self, size: int) -> Any:
        if size > self.cuMemGetInfo()[1]:
            return real.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        address = self.next_address
        self.next_address += -(-(size + 256) // 256) * 256
        self.allocations[address] = Allocation(address, np.zeros(size, dtype=np.uint8))
        return OK, address

    def cuMemFree(self, address: int) -> Any:
        del self.allocations[address]
        self.unfinished.discard(address)
        return (OK,)

    def window(self, address: int, size: int) -> np.ndarray[Any, Any]:
        for a in self.allocations.values():
            if a.address <= address and address + size <= a.address + a.bytes.nbytes:
                return a.bytes[address - a.address : address - a.address + size]
        raise RuntimeError(f"{size} bytes at {address:#x} are in no allocation")

    def _written(self, address: int, size: int) -> np.ndarray[Any, Any]:
        """A window that the null stream writes, some time after the call has returned."""
        found = self.window(address, size)
        self.unfinished.add(self._allocation(address))
        return found

    def _allocation(self, address: int) -> int:
        """The allocation that holds an address; 0 where none does."""
        return next((a.address for a in self.allocations.values() if 0 <= address - a.address < a.bytes.nbytes), 0)

    def _check_order(self, kernel: str, stream: int, addresses: list[int]) -> None:
        if stream in self.own_streams and self.unfinished & {self._allocation(a) for a in addresses}:
            raise Unordered(f"{kernel} runs on a stream of its own over what the null stream may still be writing")

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> Any:
        self._written(to, size)[:] = np.frombuffer((ctypes.c_char * size).from_address(source), dtype=np.uint8)
        return (OK,)

    def cuMemcpyDtoH(self, to: int, source: int, size: int) -> Any:
        ctypes.memmove(to, self.window(source, size).tobytes(), size)
        self.unfinished.clear()  # it waits for the null stream
        return (OK,)

    def cuMemcpyDtoD(self, to: int, source: int, size: int) -> Any:
        self._written(to, size)[:] = self.window(source, size)
        return (OK,)

    def cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: Any) -> Any:
        def work() -> None:
            self.window(to, size)[:] = self.window(source, size)
            self.now += size / 2e12

        self._put(stream, work, work)
        return (OK,)

    def cuMemsetD8(self, address: int, byte: int, size: int) -> Any:
        self._written(address, size)[:] = byte
        return (OK,)

    def cuMemsetD8Async(self, address: int, byte: int, size: int, stream: Any) -> Any:
        def work() -> None:
            self.window(address, size)[:] = byte
            self.now += size / 2e12

        self._put(stream, work, work)
        return (OK,)

    def cuPointerGetAttribute(self, attribute: Any, address: int) -> Any:
        for a in self.allocations.values():
            if a.address <= address < a.address + a.bytes.nbytes:
                return OK, 0
        return real.CUresult.CUDA_ERROR_INVALID_VALUE, None

    # -- streams, events, graphs -----------------------------------------------------------------------------------
    def _handle(self, value: Any) -> int:
        self.next_handle += 1
        self.handles[self.next_handle] = value
        return self.next_handle

    def _put(self, stream: Any, work: Callable[[], None], replay: Callable[[], None]) -> None:
        """Work on a stream: now, or as `replay` with every run of the graph that is being captured."""
        captured = self.capturing.get(int(stream))
        if captured is None:
            work()
        else:
            captured.work.append(replay)

    def cuStreamCreate(self, flags: int) -> Any:
        made = self._handle("stream")
        if flags == int(real.CUstream_flags.CU_STREAM_NON_BLOCKING):
            self.own_streams.add(made)
        return OK, real.CUstream(made)

    def cuStreamDestroy(self, stream: Any) -> Any:
        return (OK,)

    def cuStreamSynchronize(self, stream: Any) -> Any:
        return (OK,)

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> Any:
        self.capturing[int(stream)] = Captured()
        return (OK,)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        return OK, self._handle(self.capturing.pop(int(stream)))

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return OK, self._handle(self.handles[graph])

    def cuGraphDestroy(self, graph: Any) -> Any:
        del self.handles[graph]
        return (OK,)

    def cuGraphExecDestroy(self, graph: Any) -> Any:
        del self.handles[graph]
        return (OK,)

    def cuGraphLaunch(self, graph: Any, stream: Any) -> Any:
        for work in self.handles[graph].work:
            work()
        return (getattr(real.CUresult, self.lost) if self.lost and not self.late else OK,)

    def cuEventCreate(self, flags: int) -> Any:
        return OK, self._handle(Stamp())

    def cuEventDestroy(self, event: Any) -> Any:
        del self.handles[event]
        return (OK,)

    def cuEventRecord(self, event: Any, stream: Any) -> Any:
        def work() -> None:
            self.handles[event].seconds = self.now

        self._put(stream, work, work)
        return (OK,)

    def cuEventRecordWithFlags(self, event: Any, stream: Any, flags: int) -> Any:
        return self.cuEventRecord(event, stream)

    def cuEventElapsedTime(self, start: Any, end: Any) -> Any:
        return OK, (self.handles[end].seconds - self.handles[start].seconds) * 1e3

    # -- kernels ---------------------------------------------------------------------------------------------------
    def cuModuleLoadData(self, image: bytes) -> Any:
        if image.startswith(b"\x7fELF"):
            if image not in self.cubins:
                return getattr(real.CUresult, self.refusal), None
            image = self.cubins[image]
        text = image.rstrip(b"\0").decode()
        try:
            return OK, Loaded(text, find_entry(parse(text), None).name)
        except (PtxSyntaxError, MapError):
            return real.CUresult.CUDA_ERROR_INVALID_PTX, None

    def cuModuleUnload(self, module: Any) -> Any:
        return (OK,)

    def cuModuleGetFunction(self, module: Loaded, name: bytes) -> Any:
        if name.decode() != module.name:
            return real.CUresult.CUDA_ERROR_NOT_FOUND, None
        return OK, module

    def cuModuleGetGlobal(self, module: Loaded, name: bytes) -> Any:
        declared = {v.name: v.size_bytes for v in parse(module.ptx).variables if v.space in ("const", "global")}
        known = name.decode()
        if known not in declared:
            return real.CUresult.CUDA_ERROR_NOT_FOUND, None, None
        if known not in module.variables:
            module.variables[known] = self.cuMemAlloc(declared[known])[1]
        return OK, module.variables[known], declared[known]

    def cuFuncGetAttribute(self, attribute: Any, function: Loaded) -> Any:
        name = attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")
        known = {"NUM_REGS": 64, "LOCAL_SIZE_BYTES": 0, "SHARED_SIZE_BYTES": self.static_smem_bytes}
        known["MAX_DYNAMIC_SHARED_SIZE_BYTES"] = 49152
        return OK, function.attributes.get(name, known[name])

    def cuFuncSetAttribute(self, function: Loaded, attribute: Any, value: int) -> Any:
        name = attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")
        if name == "MAX_DYNAMIC_SHARED_SIZE_BYTES" and value + self.static_smem_bytes > self.smem_bytes:
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE,)
        function.attributes[name] = value
        return (OK,)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: Loaded, threads: int, smem: int) -> Any:
        return OK, min(2048 // threads, self.smem_bytes // smem if smem else 32)

    def cuOccupancyMaxActiveClusters(self, function: Loaded, config: Any) -> Any:
        size = cluster_of(config)
        per_sm = self.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, config.blockDimX, config.sharedMemBytes)[1]
        return OK, self.sms * per_sm // size

    def cuTensorMapEncodeTiled(
        self, type_: Any, rank: int, address: Any, dims: Any, strides: Any, box: Any, steps: Any, interleave: Any,
        swizzle: Any, l2: Any, fill: Any,
    ) -> Any:  # fmt: skip
        if self.aligned_maps:
            return real.CUresult.CUDA_ERROR_INVALID_VALUE, None
        return self._encode(type_, address, dims, strides, box, swizzle)

    def cuGetProcAddress(self, symbol: bytes, version: int, flags: Any) -> Any:
        """The driver's own function, which writes where it is told to."""
        word, pointer = ctypes.c_int, ctypes.c_void_p

        def encode(
            to: int, type_: int, rank: int, address: int, dims: int, strides: int, box: int, steps: int, *layout: int
        ) -> int:
            if to % 128 or symbol != b"cuTensorMapEncodeTiled" or version > 13000:
                return int(real.CUresult.CUDA_ERROR_INVALID_VALUE)
            longs = [list((ctypes.c_uint64 * n).from_address(p)) for p, n in ((dims, rank), (strides, rank - 1))]
            shorts = list((ctypes.c_uint32 * rank).from_address(box))
            status, made = self._encode(real.CUtensorMapDataType(type_), address, *longs, shorts, layout[1])
            if status == OK:
                ctypes.memmove(to, made.getPtr(), 128)
            return int(status)

        kind = ctypes.CFUNCTYPE(word, pointer, word, ctypes.c_uint32, *[pointer] * 5, *[word] * 4)
        self.callback = kind(encode)  # kept: the caller has its address alone
        return OK, ctypes.cast(self.callback, pointer).value, 0

    def _encode(self, type_: Any, address: Any, dims: Any, strides: Any, box: Any, swizzle: Any) -> Any:
        seen = described_map(type_, address, dims, strides, box, swizzle)
        try:
            self._map(seen)
        except MapError:
            return real.CUresult.CUDA_ERROR_INVALID_VALUE, None
        self.maps.append(seen)
        return OK, numbered_map(len(self.maps))

    def _map(self, seen: dict[str, Any]) -> TensorMap:
        held = self.allocations[self._allocation(seen["address"])]
        return emulated_map(seen, DeviceBuffer(held.bytes, offset=seen["address"] - held.address, base=held.address))

    def cuLaunchKernelEx(self, config: Any, function: Loaded, parameters: int, extra: int) -> Any:
        read = parameters_of(function.ptx, parameters)
        self.launches.append(
            {
                "kernel": function.name, "grid": (config.gridDimX, config.gridDimY, config.gridDimZ),
                "block": (config.blockDimX, config.blockDimY, config.blockDimZ), "cluster": cluster_of(config),
                "smem": config.sharedMemBytes, "stream": int(config.hStream), "parameters": read,
                "attributes": sorted(a.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_") for a in attributes_of(config)),
            }
        )  # fmt: skip
        limit = function.attributes.get("MAX_DYNAMIC_SHARED_SIZE_BYTES", 49152)
        if config.sharedMemBytes > limit:
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE,)
        grid, cluster, threads = config.gridDimX, cluster_of(config), config.blockDimX
        smem, stream = config.sharedMemBytes, config.hStream
        addresses = [int.from_bytes(data, "little") for data in read if len(data) == 8]
        addresses += [self.maps[int.from_bytes(data[:8], "little") - 1]["address"] for data in read if len(data) == 128]

        def work() -> None:
            self._check_order(function.name, int(stream), addresses)
            self._befall(function.ptx, timed=False)
            if self.emulating:
                self._emulate(function, grid, cluster, threads, smem, read)
            self._pass(function.ptx)

        def replay() -> None:
            self._check_order(function.name, int(stream), addresses)
            self._befall(function.ptx, timed=True)
            self._pass(function.ptx)

        self._put(stream, work, replay)
        return (getattr(real.CUresult, self.lost) if self.lost and not self.late else OK,)

    def _pass(self, ptx: str) -> None:
        """The clock moves by what a launch takes."""
        stretch = 1 + self.drift * len(self.launches)
        self.now += seconds_of(ptx) * stretch * max(1 + self.noise * self.rng.standard_normal(), 0.5)

    def _befall(self, ptx: str, *, timed: bool) -> None:
        self.lost = befall(ptx, timed=timed) or self.lost

    def _emulate(self, function: Loaded, grid: int, cluster: int, threads: int, smem: int, read: list[bytes]) -> None:
        buffers = [DeviceBuffer(a.bytes, base=a.address) for a in self.allocations.values()]
        arguments: list[Any] = []
        for data in read:
            if len(data) == 128:
                arguments.append(self._map(self.maps[int.from_bytes(data[:8], "little") - 1]))
            else:
                arguments.append(np.frombuffer(data, dtype={4: np.uint32, 8: np.uint64}[len(data)])[0])
        written = {name: self.allocations[address].bytes for name, address in function.variables.items()}
        try:
            emulate(
                function.ptx, grid=grid, block=threads, cluster=(cluster, 1, 1), args=arguments, dynamic_smem=smem,
                buffers=buffers, variables=written,
            )  # fmt: skip
        except EmulationFault as fault:
            self.fault = fault
            self.lost = "CUDA_ERROR_ILLEGAL_ADDRESS"


def described(**fields: Any) -> dict[str, Any]:
    """Fields of a GPU, with those that the environment says (FAKE_GPU, an object of JSON) in front."""
    return {**fields, **json.loads(os.environ.get("FAKE_GPU", "{}"))}


# A process that is told to use this module as its driver has this one GPU.
_gpu = FakeCuda(**described(memory_bytes=1 << 30))


def __getattr__(name: str) -> Any:
    return getattr(_gpu, name)
