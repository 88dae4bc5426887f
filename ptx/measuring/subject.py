"""The subject of a measurement on one GPU: a question's operands in device memory, and what the answers must be.

Inputs are drawn once from a seed: as the machine declares them, or small integers, for which every sum is exact, and
random numbers uniform in [-1, 1) (integers again for integer types). Answers are worked out by NumPy and kept in a
folder, so that a process that takes the place of a crashed one need not work them out again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.ptx.bounds.answers import Answer, answers
from tinygpu.ptx.measuring.bundle import Question
from tinygpu.ptx.measuring.comparer import Comparer
from tinygpu.ptx.measuring.intervals import GUARD_ELEMS, intervals
from tinygpu.ptx.measuring.reference import evaluate
from tinygpu.ptx.runtime.context import POISON, Context, Memory, Workspaces
from tinygpu.ptx.runtime.elements import Element, element
from tinygpu.ptx.runtime.launch import Tensor
from tinygpu.ptx.runtime.narrow import packed, unpacked
from tinygpu.ptx.runtime.sequence import ArgumentSequence, LoadedSequence

Inputs = Literal["integers", "random"]
INPUTS: tuple[Inputs, ...] = ("integers", "random")
DISTRIBUTION = "uniform in [-1, 1); integers from -3 to 3 for integer types"


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """One set of all the operands in device memory, with the addresses of their first elements."""

    memory: Mapping[str, Memory]
    addresses: Mapping[str, int]

    def free(self) -> None:
        for memory in self.memory.values():
            memory.free()


class Subject:
    """A question on a GPU.

    scalars  numbers given at launch, per kind of inputs
    """

    def __init__(self, context: Context, question: Question, seed: int, folder: Path) -> None:
        """Draws inputs, works answers out (or reads them from `folder`), and brings both to the GPU.

        Raises OutOfDeviceMemory.
        """
        self.context = context
        self.question = question
        self.comparer = Comparer(context)
        self.workspaces = Workspaces(context)
        self.scalars: dict[Inputs, dict[str, Any]] = {}
        self._given: dict[tuple[Inputs, str], Memory] = {}
        self._right: dict[tuple[Inputs, str], tuple[Memory, Memory]] = {}
        self._folder = folder
        for inputs in INPUTS:
            files = self._files(inputs)
            if not all(f.exists() for f in files.values()):
                self._write(inputs, draw(question, inputs, seed))
            self.scalars[inputs] = json.loads(files["scalars"].read_text())
            for tensor in question.tensors:
                if tensor.access != "out":
                    self._given[inputs, tensor.name] = self._upload(tensor, np.load(files[tensor.name]))
                if tensor.access != "in":
                    low, high = (np.load(files[f"{tensor.name}-{end}"]) for end in ("low", "high"))
                    self._right[inputs, tensor.name] = (self._raw(tensor, low), self._raw(tensor, high))
        self.working = self.operands("random")
        self._check_comparer()

    def operands(self, inputs: Inputs) -> Operands:
        """A set of operands of its own, holding `inputs`; outputs are poisoned, guards behind them too."""
        memory, addresses = {}, {}
        for t in self.question.tensors:
            memory[t.name] = self.context.allocate(_allocated(t), t.name)
            addresses[t.name] = memory[t.name].address + _offset(t)
        made = Operands(memory, addresses)
        self.renew(made, inputs)
        return made

    def renew(self, operands: Operands, inputs: Inputs) -> None:
        """Inputs as they were drawn, outputs poisoned."""
        for t in self.question.tensors:
            if t.access == "out":
                operands.memory[t.name].fill(POISON)
            else:
                operands.memory[t.name].copy_from(self._given[inputs, t.name])

    def arguments(
        self, kernel: LoadedSequence, operands: Operands, inputs: Inputs
    ) -> ArgumentSequence:
        spaces = {w.name: self.workspaces.memory(w).address for w in kernel.workspaces}
        made = kernel.arguments({**operands.addresses, **spaces})
        for name, value in self.scalars[inputs].items():
            made.set_scalar(name, value)
        return made

    def bytes_per_set(self) -> int:
        return sum(_allocated(t) for t in self.question.tensors)

    def verify(self, kernel: LoadedSequence) -> str:
        """"" where the kernel's results are right; else a sentence. Raises CudaError where it faults."""
        config = kernel.config(0)
        for inputs in INPUTS:
            self.renew(self.working, inputs)
            arguments = self.arguments(kernel, self.working, inputs)
            for w in kernel.workspaces:
                self.workspaces.clear(w)
            kernel.run(arguments, config)
            self.context.synchronize()
            for w in kernel.workspaces:
                if w.zeroed and self.workspaces.memory(w).read(0, w.bytes).any():
                    return f"{w.name} is left with other bytes than zeros, which the next launch relies on"
            for tensor in self._outputs():
                sentence = self._judge(inputs, tensor)
                if sentence:
                    return sentence
        return ""

    def close(self) -> None:
        self.working.free()
        self.comparer.close()
        for memory in self._given.values():
            memory.free()
        for pair in self._right.values():
            for memory in pair:
                memory.free()

    # -- answers ---------------------------------------------------------------------------------------------------
    def _outputs(self) -> list[Tensor]:
        return [t for t in self.question.tensors if t.access != "in"]

    def _files(self, inputs: Inputs) -> dict[str, Path]:
        """Where inputs and answers are kept; a file is there whole or not at all."""
        names = [t.name for t in self.question.tensors if t.access != "out"]
        names += [f"{t.name}-{end}" for t in self._outputs() for end in ("low", "high")]
        # by number: names come from a file, and form no paths
        files = {name: self._folder / f"{inputs}-{number}.npy" for number, name in enumerate(names)}
        return {**files, "scalars": self._folder / f"{inputs}-scalars.json"}

    def _write(self, inputs: Inputs, drawn: tuple[dict[str, NDArray[Any]], dict[str, Any]]) -> None:
        bits, scalars = drawn
        arrays = dict(bits)
        for name, (low, high) in self._work_out(inputs, bits, scalars).items():
            arrays |= {f"{name}-low": low, f"{name}-high": high}
        draft = self._folder / "draft.npy"
        files = self._files(inputs)
        for name, array in arrays.items():
            np.save(draft, array)
            draft.replace(files[name])
        files["scalars"].write_text(json.dumps(scalars))

    def _work_out(
        self, inputs: Inputs, bits: Mapping[str, NDArray[Any]], scalars: Mapping[str, Any]
    ) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Intervals of every output."""
        found = None
        if inputs == "integers" and self.question.rounding.exact:
            # where no sum can leave the whole numbers that single precision holds, it gives the same in less time
            found = self._answers(bits, scalars, np.float32)
            if not all(a.low is a.value and a.high is a.value for a in found.values()):
                found = None
        found = found or self._answers(bits, scalars, np.float64)
        return {t.name: intervals(t, found[t.name]) for t in self._outputs()}

    def _answers(
        self, bits: Mapping[str, NDArray[Any]], scalars: Mapping[str, Any], precision: Any
    ) -> dict[str, Answer]:
        q = self.question
        values = {n: q.tensor(n).element.decode(b) for n, b in bits.items()} | dict(scalars)
        given = {n: np.asarray(v, dtype=precision) for n, v in values.items()}
        outputs = [t.name for t in self._outputs()]
        return answers(lambda **arrays: evaluate(q.reference, arrays), given, {}, outputs, q.rounding)

    def _check_comparer(self) -> None:
        """Poison is no answer: a comparison that does not say so judges nothing."""
        for t in self._outputs():
            self.working.memory[t.name].fill(POISON)
            low, high = self._right["random", t.name]
            count = t.extent_elems + GUARD_ELEMS
            found = self.comparer.outside(t.element, self.working.addresses[t.name], low.address, high.address, count)
            elements = int(np.prod(t.shape))
            if found.count > elements or (found.count < elements if t.element.is_float else found.count == 0):
                raise RuntimeError(
                    f"comparing results on {self.context.limits.name} does not work: of {elements:,} elements of "
                    f"{t.name} that were never written, {found.count:,} are called wrong; please report this"
                )

    def _judge(self, inputs: Inputs, tensor: Tensor) -> str:
        low, high = self._right[inputs, tensor.name]
        count = tensor.extent_elems + GUARD_ELEMS
        address = self.working.addresses[tensor.name]
        found = self.comparer.outside(tensor.element, address, low.address, high.address, count)
        if not found.count:
            return ""
        place = _place(tensor, found.first)
        if place is None:
            return f"{tensor.name}: bytes between its rows or behind its end were written ({inputs} inputs)"
        size = tensor.element.bytes
        at = found.first * size
        got, least, greatest = (
            tensor.element.decode(m.read(at + skip, size).view(tensor.element.storage))[0]
            for m, skip in ((self.working.memory[tensor.name], _offset(tensor)), (low, 0), (high, 0))
        )
        right = f"{least:g} is right" if least == greatest else f"{least:g} to {greatest:g} is right"
        return (
            f"{tensor.name}{list(place)} is {got:g}, and {right} ({inputs} inputs); {found.count:,} of "
            f"{int(np.prod(tensor.shape)):,} elements are wrong"
        )

    # -- memory ----------------------------------------------------------------------------------------------------
    def _upload(self, tensor: Tensor, bits: NDArray[Any]) -> Memory:
        """An input as a whole set has it: at its offset, poison around."""
        storage = np.full(_allocated(tensor), POISON, dtype=np.uint8)
        if tensor.element.bits < 8:
            codes = unpacked(storage[_offset(tensor) :], tensor.element.bits)
            np.lib.stride_tricks.as_strided(codes, tensor.shape, tensor.strides)[...] = bits
            storage[_offset(tensor) :] = packed(codes, tensor.element.bits)
            memory = self.context.allocate(storage.nbytes, tensor.name)
            memory.write(storage)
            return memory
        size = tensor.element.bytes
        strides = tuple(s * size for s in tensor.strides)
        np.ndarray(tensor.shape, tensor.element.storage, storage.data, _offset(tensor), strides)[...] = bits
        memory = self.context.allocate(storage.nbytes, tensor.name)
        memory.write(storage)
        return memory

    def _raw(self, tensor: Tensor, bits: NDArray[Any]) -> Memory:
        memory = self.context.allocate(bits.nbytes, f"the right answers of {tensor.name}")
        memory.write(bits)
        return memory


def draw(question: Question, inputs: Inputs, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """(bits of everything that a kernel reads, scalars): the same for every memory layout of a question."""
    rng = np.random.default_rng([seed, inputs == "random"])
    bits = {}
    for t in sorted(question.tensors, key=lambda t: t.name):
        if t.access == "out":
            continue
        kind = t.element
        if t.name in question.values:
            bits[t.name] = _declared(question.values[t.name], kind, t.shape, inputs, rng)
            continue
        if kind.bits < 8 and inputs == "random":  # all that there are
            bits[t.name] = rng.integers(0, 1 << kind.bits, t.shape, dtype=np.uint8)
            continue
        if kind.is_float and inputs == "random":
            values = rng.random(t.shape, dtype=np.float32)
            values *= 2
            values -= 1
            if t.type == "tf32":  # the tensor core reads no more than these bits
                values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        else:
            values = rng.integers(0 if kind.kind == "unsigned" else -3, 4, t.shape, dtype=np.int8).astype(np.float32)
        bits[t.name] = kind.encode(values)
    scalars: dict[str, Any] = {}
    for name, type_ in question.scalars:
        floating = type_ == "f32"
        if name in question.values:
            held = element(type_).decode(_declared(question.values[name], element(type_), (), inputs, rng))
            scalars[name] = float(held) if floating else int(held)
            continue
        scalars[name] = float(np.float32(rng.uniform(-1, 1))) if floating and inputs == "random" else 3
    return bits, scalars


def _declared(
    values: Distribution, kind: Element, shape: tuple[int, ...], inputs: Inputs, rng: np.random.Generator
) -> NDArray[Any]:
    """Bits of what a machine declares: its small whole numbers where it has such, or any."""
    found = values.draw_whole(rng, shape, 3) if inputs == "integers" else values.draw(rng, shape)
    bits = np.asarray(kind.encode_drawn(found, values))
    return bits & np.uint32(0xFFFFE000) if kind.name == "tf32" else bits


def _offset(tensor: Tensor) -> int:
    """Bytes in front: the address is a multiple of the promised alignment and of nothing larger."""
    return tensor.align_bytes if tensor.align_bytes < 256 else 0


def _allocated(tensor: Tensor) -> int:
    return _offset(tensor) + tensor.extent_bytes + GUARD_ELEMS * tensor.element.bits // 8


def _place(tensor: Tensor, position: int) -> tuple[int, ...] | None:
    """The coordinates of the element at a position in memory; None in a gap."""
    rest, place = position, [0] * len(tensor.shape)
    for axis in sorted(range(len(tensor.shape)), key=lambda a: -tensor.strides[a]):
        place[axis], rest = divmod(rest, tensor.strides[axis])
    inside = rest == 0 and all(p < n for p, n in zip(place, tensor.shape, strict=True))
    return tuple(place) if inside else None
