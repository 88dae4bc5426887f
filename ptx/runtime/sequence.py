"""Kernels that are launched one after another on one stream, loaded as one thing: one, or the steps of a plan.

A sequence is asked what a kernel is asked (`LoadedKernel`): whoever verifies, times or calls one needs to know no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.context import Context
from tinygpu.ptx.runtime.launch import Launch, Workspace
from tinygpu.ptx.runtime.loaded import LoadedKernel, load_kernel

# PTX, and machine code where there is some.
Text: TypeAlias = tuple[bytes, "bytes | None"]


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentSequence:
    """The arguments of each launch."""

    buffers: tuple[ArgumentBuffer, ...]

    @property
    def fills(self) -> tuple[tuple[str, int, int, int], ...]:
        return tuple(fill for buffer in self.buffers for fill in buffer.fills)

    @property
    def scalars(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for buffer in self.buffers for name in buffer.scalars))

    def set_scalar(self, name: str, value: Any) -> None:
        """Writes a number for every launch that takes it; raises WrongArray where the parameter does not hold it."""
        for buffer in self.buffers:
            if name in buffer.scalars:
                buffer.set_scalar(name, value)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedSequence:
    """Kernels that the driver has loaded, in the order in which they run."""

    parts: tuple[LoadedKernel, ...]

    @property
    def context(self) -> Context:
        return self.parts[0].context

    @property
    def launch(self) -> Launch:
        return self.parts[0].launch

    @property
    def registers(self) -> int:
        """Per thread, of the kernel that has most."""
        return max(part.registers for part in self.parts)

    @property
    def local_bytes(self) -> int:
        return max(part.local_bytes for part in self.parts)

    @property
    def grid(self) -> int:
        """CTAs of all launches."""
        return sum(part.grid for part in self.parts)

    @property
    def refused_cubin(self) -> str:
        return "; ".join(part.refused_cubin for part in self.parts if part.refused_cubin)

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        """What the launches need beside their tensors; what they hand to each other is one of them."""
        found: dict[str, Workspace] = {}
        for part in self.parts:
            for w in part.workspaces:
                known = found.setdefault(w.name, w)
                found[w.name] = replace(known, bytes=max(known.bytes, w.bytes))
        return tuple(found.values())

    def for_launch(self, launch: Launch) -> LoadedSequence:
        """The same kernels for another problem; raises LaunchRefused where a grid is too large."""
        launches = (launch, *launch.then)
        return LoadedSequence(tuple(p.for_launch(each) for p, each in zip(self.parts, launches, strict=True)))

    def config(self, stream: Any) -> tuple[Any, ...]:
        return tuple(part.config(stream) for part in self.parts)

    def arguments(self, addresses: Mapping[str, int]) -> ArgumentSequence:
        return ArgumentSequence(tuple(part.arguments(addresses) for part in self.parts))

    def calls(self, arguments: ArgumentSequence, config: tuple[Any, ...]) -> tuple[tuple[Any, Any, int], ...]:
        """(configuration, function, address of the arguments) of each launch, in their order."""
        parts = zip(self.parts, arguments.buffers, config, strict=True)
        return tuple(call for part, buffer, c in parts for call in part.calls(buffer, c))

    def run(self, arguments: ArgumentSequence, config: tuple[Any, ...]) -> None:
        """Launches every kernel once, one after another; returns at once."""
        for part, buffer, c in zip(self.parts, arguments.buffers, config, strict=True):
            part.run(buffer, c)

    def unload(self) -> None:
        for part in self.parts:
            part.unload()


def load(context: Context, launch: Launch, texts: Sequence[Text]) -> LoadedSequence:
    """Loads the kernels of a launch and of those that follow it; raises as `load_kernel` does.

    texts  of each launch
    """
    launches = (launch, *launch.then)
    if len(launches) != len(texts):
        raise ValueError(f"{len(launches)} launches have as many texts, not {len(texts)}")
    parts: list[LoadedKernel] = []
    try:
        for each, (ptx, cubin) in zip(launches, texts, strict=True):
            parts.append(load_kernel(context, each, ptx, cubin))
    except BaseException:
        for part in parts:
            part.unload()
        raise
    return LoadedSequence(tuple(parts))


__all__ = ["ArgumentSequence", "LoadedSequence", "Text", "load"]
