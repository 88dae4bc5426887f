"""Kernels of a bundle, on operands of whoever has them: loaded, with arguments for each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinygpu.ptx.measuring.bundle import Bundle, Entry
from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.context import Context, Workspaces
from tinygpu.ptx.runtime.loaded import load_kernel


class OurKernel:
    """One kernel, ready to launch on a stream for each of several sets of operands."""

    def __init__(
        self, context: Context, bundle: Bundle, entry: Entry, sets: Sequence[Mapping[str, int]],
        scalars: Mapping[str, float], stream: int,
    ) -> None:  # fmt: skip
        """
        sets    per set the address of each tensor
        stream  handle of the stream, as a number

        Raises WrongArchitecture, LaunchRefused, OutOfDeviceMemory and CudaError.
        """
        self.entry = entry
        self.kernel = load_kernel(context, entry.launch, bundle.ptx(entry), bundle.cubin(entry))
        # of its own: what another kernel leaves behind must not matter
        self._spaces = Workspaces(context)
        spaces = {w.name: self._spaces.memory(w).address for w in self.kernel.workspaces}
        self._arguments = [ArgumentBuffer(context.driver, entry.launch, {**s, **spaces}) for s in sets]
        for arguments in self._arguments:
            for name, value in scalars.items():
                arguments.set_scalar(name, value)
        self._config = self.kernel.config(stream)

    def launch(self, number: int) -> None:
        self.kernel.run(self._arguments[number], self._config)

    def close(self) -> None:
        self.kernel.unload()

    def __str__(self) -> str:
        point = " ".join(f"{k}={v}" for k, v in self.entry.point.items())
        return f"{self.entry.machine} {point}"


def bytes_moved(entry: Entry) -> int:
    """Bytes that the operands have: what must be read and written once, in-and-out ones twice."""
    return sum(t.extent_bytes * (2 if t.access == "inout" else 1) for t in entry.launch.tensors)


def layouts(entry: Entry) -> dict[str, tuple[Any, ...]]:
    """Type, shape and strides of every operand, by name."""
    return {t.name: (t.type, t.shape, t.strides) for t in entry.launch.tensors}


def described(entry: Entry) -> dict[str, Any]:
    """A kernel, for the record."""
    return {
        "kernel": entry.name, "machine": entry.machine, "point": dict(entry.point), "digest": entry.digest,
        "predicted_s": entry.predicted_seconds, "registers": entry.registers,
    }  # fmt: skip
