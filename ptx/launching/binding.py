"""Binding: arrays to a machine's tensors. Dims, order, leading dimensions and alignment are read off the arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tinygpu.distributions import WHOLE
from tinygpu.language.inputs import input_distributions
from tinygpu.language.machine import Machine
from tinygpu.language.posing import problem
from tinygpu.language.problem import Problem
from tinygpu.language.tensors import TensorDeclaration
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.runtime.arrays import View
from tinygpu.ptx.runtime.elements import element
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.runtime.launch import Launch

# What a kernel can gain from alignment ends here: its widest access.
MOST_ALIGN_BYTES = 16


def problem_of(machine: type[Machine], views: Mapping[str, View], options: Mapping[str, Any]) -> Problem:
    """The problem that arrays, by tensor, pose to a machine; tensors without an array take the machine's default.

    Raises WrongArray where the arrays do not fit each other or the machine, and ProblemError where the machine cannot
    take the problem.
    """
    declared = {t.name: t for t in machine.tensor_declarations()}
    dims: dict[str, tuple[int, str]] = {}
    lds, majors, aligns, dtypes = {}, {}, {}, {}
    for name, view in views.items():
        tensor = declared[name]
        _check_rank(machine, tensor, view)
        for dim, size in zip(tensor.dims, view.shape, strict=True):
            known, where = dims.setdefault(dim.name, (size, name))
            if known != size:
                raise WrongArray(f"{machine.__name__}: the dim {dim.name} is {known} in {where} and {size} in {name}")
        dtypes[name] = _dtype(machine, tensor, view)
        majors[name], lds[name] = _placed(machine, tensor, view)
        aligns[name] = _align(view)
    sizes = {name: size for name, (size, _) in dims.items()}
    return problem(machine, sizes, dtypes=dtypes, majors=majors, lds=lds, aligns=aligns, options=options)


def launcher(machine: type[Machine], kernel: Kernel, made_for: Problem) -> Callable[[Mapping[str, View]], Launch]:
    """The launch of `kernel` for arrays: those that it was compiled for, and every other that it takes.

    Dims and leading dimensions are launch arguments, so that one kernel serves many problems; what it was specialised
    for is checked.
    """

    def launch_for(views: Mapping[str, View]) -> Launch:
        title = machine.__name__
        known = {o.name: o for o in made_for.operands}
        for name, view in views.items():
            wanted = known[name].dtype.name
            if view.type != wanted and (view.type, wanted) != ("f32", "tf32"):
                raise WrongArray(
                    f"{title}: {name} is {view.type}, and this kernel was compiled for {wanted}; convert it, or "
                    "compile with this array"
                )
        asked = {name: _as(view, known[name].dtype.name) for name, view in views.items()}
        found = problem_of(machine, asked, dict(made_for.options))
        operands = []
        for o in found.operands:
            compiled = known[o.name]
            if o.name in views and o.major != compiled.major:
                raise WrongArray(
                    f"{title}: {o.name} is {o.major}-major (strides {list(views[o.name].strides)}), and this kernel "
                    f"was compiled for {compiled.major}-major; compile with this array, or copy it"
                )
            if o.name in views and o.align_bytes < min(compiled.align_bytes, MOST_ALIGN_BYTES):
                raise WrongArray(
                    f"{title}: the address of {o.name} is a multiple of {o.align_bytes} B, and this kernel was "
                    f"compiled for multiples of {compiled.align_bytes}; compile with this array, or copy it"
                )
            operands.append(compiled if o.name not in views and o.shape == compiled.shape else o)
        launched = Problem(found.dims, tuple(operands), found.options)
        try:
            values = input_distributions(machine, launched)
        except ValueError as empty:
            raise WrongArray(f"{title}: {empty}") from None
        return replace(launch_of(kernel, launched), values=tuple((n, v) for n, v in values.items() if v.law in WHOLE))

    return launch_for


def _as(view: View, type_: str) -> View:
    """An f32 array where tf32 is asked for is one of tf32."""
    return View(view.address, type_, view.shape, view.strides, host=view.host)


def _check_rank(machine: type[Machine], tensor: TensorDeclaration, view: View) -> None:
    if len(view.shape) != len(tensor.dims):
        names = ", ".join(d.name for d in tensor.dims)
        count = len(tensor.dims)
        raise WrongArray(
            f"{machine.__name__}: {tensor.name} has {count} dim{'' if count == 1 else 's'} ({names}), and the array "
            f"has shape {list(view.shape)}"
        )


def _dtype(machine: type[Machine], tensor: TensorDeclaration, view: View) -> str:
    """The array's type; f32 stands for tf32 where a machine has that alone."""
    names = {d.name for d in tensor.dtypes}
    if view.type == "f32" and "f32" not in names and "tf32" in names:
        return "tf32"
    return view.type


def _placed(machine: type[Machine], tensor: TensorDeclaration, view: View) -> tuple[str, int]:
    """(major-ness, leading dimension in elements) of an array's strides."""
    shape, strides = view.shape, view.strides
    rank = len(shape)
    steps = 16 // element(view.type).bytes
    for major in sorted(tensor.majors, key=lambda m: m != tensor.majors[0]):
        order = [0, *reversed(range(1, rank))] if major == "col" else list(reversed(range(rank)))
        inner = order[0]
        if shape[inner] > 1 and strides[inner] != 1:
            continue
        if rank == 1:
            return major, shape[0]
        next_ = order[1]
        # a single row has no neighbour: its distance is any that TMA takes too
        ld = strides[next_] if shape[next_] > 1 else -(-shape[inner] // steps) * steps
        if ld < shape[inner]:
            continue
        want = ld
        dense = True
        for axis, below in zip(order[2:], order[1:], strict=False):
            want *= shape[below]
            dense = dense and (shape[axis] == 1 or strides[axis] == want)
        if dense:
            return major, ld
    takes = " or ".join(f"{m}-major" for m in tensor.majors)
    raise WrongArray(
        f"{machine.__name__}: {tensor.name} must be {takes}, with neighbours along one axis 1 element apart and no "
        f"overlap, and the array of shape {list(shape)} has strides {list(strides)} (elements); make it contiguous"
    )


def _align(view: View) -> int:
    """The largest power of two up to 16 that divides the address; host arrays are copied to where it is 16."""
    if view.host is not None:
        return MOST_ALIGN_BYTES
    return min(view.address & -view.address, MOST_ALIGN_BYTES) if view.address else MOST_ALIGN_BYTES
