"""Binding: arrays to a machine's tensors. Dims, order, leading dimensions and alignment are read off the arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tinygpu.distributions import WHOLE
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.instruction.base import or_of
from tinygpu.language.instruction.bulk import PADDED_ALIGN_BYTES
from tinygpu.language.parameters import Dim, Option
from tinygpu.language.posing import problem
from tinygpu.language.problem import Problem
from tinygpu.language.strides import overlapping, packed
from tinygpu.language.tensors import TensorDeclaration
from tinygpu.ptx.launching.kernel import LaunchError
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.launching.launches import launch_of_kernels
from tinygpu.ptx.launching.legal import unlawful
from tinygpu.ptx.runtime.arrays import View
from tinygpu.ptx.runtime.elements import element
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.runtime.launch import Launch

# What a kernel can gain from alignment ends here: its widest access.
MOST_ALIGN_BYTES = 16
# Elements narrower than a byte in an array of bytes, by their bits.
_TOGETHER = {4: "two in each byte", 6: "four in every three bytes"}


def problem_of(
    machine: type[Declared], views: Mapping[str, View], options: Mapping[str, Any], like: Problem | None = None
) -> Problem:
    """The problem that arrays, by tensor, pose to a machine; tensors without an array take the machine's default.

    like  where strides fit several orders, a tensor has the one that it has there

    Raises WrongArray where the arrays do not fit each other or the machine, and ProblemError where the machine cannot
    take the problem.
    """
    declared = {t.name: t for t in machine.tensor_declarations()}
    dims: dict[str, tuple[int, str]] = {}
    strides, majors, aligns, dtypes = {}, {}, {}, {}
    wanted_orders = {o.name: o.major for o in like.operands} if like else {}
    for name, given in views.items():
        tensor = declared[name]
        view = _as(given, narrow, name) if given.type == "u8" and (narrow := _narrow(machine, tensor)) else given
        _check_rank(machine, tensor, view)
        for axis, (dim, size) in enumerate(zip(tensor.dims, view.shape, strict=True)):
            wanted = options.get(dim.name) if isinstance(dim, Option) else dim if isinstance(dim, int) else None
            if wanted is not None and wanted != size:
                raise WrongArray(
                    f"{machine.__name__}: {name} has {wanted} elements along axis {axis}, and the array has {size}"
                )
            if not isinstance(dim, Dim):
                continue
            known, where = dims.setdefault(dim.name, (size, name))
            if known != size:
                raise WrongArray(f"{machine.__name__}: the dim {dim.name} is {known} in {where} and {size} in {name}")
        dtypes[name] = _dtype(machine, tensor, view)
        majors[name], strides[name] = _placed(machine, tensor, view, wanted_orders.get(name))
        aligns[name] = _align(view)
    sizes = {name: size for name, (size, _) in dims.items()}
    return problem(machine, sizes, dtypes=dtypes, majors=majors, strides=strides, aligns=aligns, options=options)


def launcher(kernels: Kernels) -> Callable[[Mapping[str, View]], Launch]:
    """The launch of a candidate for arrays: those that it was compiled for, and every other that its kernels take.

    Dims and leading dimensions are launch arguments, so that one kernel serves many problems; what it was specialised
    for is checked.
    """

    machine, made_for = kernels.machine, kernels.problem

    def launch_for(views: Mapping[str, View]) -> Launch:
        title = machine.__name__
        known = {o.name: o for o in made_for.operands}
        for name, view in views.items():
            wanted = known[name].dtype.name
            if known[name].dtype.bits < 8:
                if view.type != "u8":
                    raise WrongArray(
                        f"{title}: {name} is {view.type}, and this kernel was compiled for {wanted}, of which an array "
                        f"of u8 holds {_TOGETHER[known[name].dtype.bits]}; pack it"
                    )
            elif view.type != wanted and (view.type, wanted) != ("f32", "tf32"):
                raise WrongArray(
                    f"{title}: {name} is {view.type}, and this kernel was compiled for {wanted}; convert it, or "
                    "compile with this array"
                )
        asked = {name: _as(view, known[name].dtype.name, name) for name, view in views.items()}
        found = problem_of(machine, asked, dict(made_for.options), made_for)
        operands = []
        for o in found.operands:
            compiled = known[o.name]
            if o.name in views and o.major != compiled.major:
                raise WrongArray(
                    f"{title}: {o.name} is {o.major}-major (strides {list(views[o.name].strides)}), and this kernel "
                    f"was compiled for {compiled.major}-major; compile with this array, or copy it"
                )
            if o.name in views and o.align_bytes < min(compiled.align_bytes, _most_align(compiled.dtype.name)):
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
        whole = tuple((name, v) for name, v in values.items() if v.law in WHOLE)
        posed = kernels.posed(launched)
        launch = launch_of_kernels(posed)
        if launched != made_for and (sentence := unlawful(posed)):
            raise LaunchError(f"{title}: this candidate is not for these arrays: {sentence}; compile with them")
        return replace(launch, values=whole)

    return launch_for


def _as(view: View, type_: str, name: str) -> View:
    """An f32 array where tf32 is asked for is one of tf32; one of bytes has the elements that its rows hold.

    Raises WrongArray where a row of bytes holds no whole number of them.
    """
    bits = element(type_).bits
    if bits < 8 and view.type == "u8":
        near = next((axis for axis in reversed(range(len(view.shape))) if view.strides[axis] == 1), len(view.shape) - 1)
        along = [size if axis == near else 0 for axis, size in enumerate(view.shape)]
        apart = [0 if axis == near else step for axis, step in enumerate(view.strides)]
        if torn := next((size for size in (*along, *apart) if size * 8 % bits), 0):
            raise WrongArray(
                f"{name} has rows of {torn} bytes, which hold no whole number of {type_}, of {bits} bits each"
            )
        shape = tuple(size * 8 // bits if axis == near else size for axis, size in enumerate(view.shape))
        strides = tuple(step if axis == near else step * 8 // bits for axis, step in enumerate(view.strides))
        return View(view.address, type_, shape, strides, host=view.host)
    return View(view.address, type_, view.shape, view.strides, host=view.host)


def _narrow(machine: type[Declared], tensor: TensorDeclaration) -> str:
    """The type narrower than a byte that an array of bytes holds, of a tensor that has one and no bytes; or "".

    Raises WrongArray where it may be several.
    """
    narrow = [t.name for t in tensor.dtypes if t.bits < 8]
    if not narrow or "u8" in {t.name for t in tensor.dtypes}:
        return ""
    if len(narrow) > 1:
        raise WrongArray(
            f"{machine.__name__}: {tensor.name} is u8, whose bytes may hold {or_of(narrow)}; compile for a problem "
            "that names its type, and call the kernel with the arrays"
        )
    return narrow[0]


def _check_rank(machine: type[Declared], tensor: TensorDeclaration, view: View) -> None:
    if len(view.shape) != len(tensor.dims):
        names = ", ".join(tensor.names())
        count = len(tensor.dims)
        raise WrongArray(
            f"{machine.__name__}: {tensor.name} has {count} dim{'' if count == 1 else 's'} ({names}), and the array "
            f"has shape {list(view.shape)}"
        )


def _dtype(machine: type[Declared], tensor: TensorDeclaration, view: View) -> str:
    """The array's type; f32 stands for tf32 where a machine has that alone."""
    names = {d.name for d in tensor.dtypes}
    if view.type == "f32" and "f32" not in names and "tf32" in names:
        return "tf32"
    return view.type


def _placed(
    machine: type[Declared], tensor: TensorDeclaration, view: View, wanted: str | None
) -> tuple[str, dict[int, int]]:
    """(order in memory, strides in elements) of an array; the first of the tensor's orders that has them so."""
    shape, strides = view.shape, view.strides
    steps = 128 // element(view.type).bits
    # of orders with one contiguous axis, which all fit, that in which the axes lie
    by_stride = sorted(range(len(shape)), key=lambda axis: strides[axis])
    for major in sorted(tensor.majors, key=lambda m: (m != wanted, list(tensor.order(m)) != by_stride)):
        inner, *further = tensor.order(major)
        if (shape[inner] > 1 and strides[inner] != 1) or overlapping(shape, strides):
            continue
        # a single row has no neighbour: its distance is any that TMA takes too
        plain = packed(shape, (inner, *further), dict.fromkeys(further[:1], -(-shape[inner] // steps) * steps))
        apart, reach = dict[int, int](), shape[inner]
        for axis in further:
            apart[axis] = strides[axis] if shape[axis] > 1 else max(plain[axis], -(-reach // steps) * steps)
            reach = max(reach, apart[axis] * shape[axis])
        if not further or apart[further[0]] >= shape[inner]:
            return major, apart
    takes = " or ".join(f"{m}-major" for m in tensor.majors)
    raise WrongArray(
        f"{machine.__name__}: {tensor.name} must be {takes}, with neighbours along one axis 1 element apart and no "
        f"overlap, and the array of shape {list(shape)} has strides {list(strides)} (elements); make it contiguous"
    )


def _align(view: View) -> int:
    """The largest power of two that divides the address, up to what kernels gain from; host arrays are copied there."""
    most = _most_align(view.type)
    if view.host is not None:
        return most
    return min(view.address & -view.address, most) if view.address else most


def _most_align(type_: str) -> int:
    """Of elements narrower than a byte, TMA asks for more than of others, where it pads them."""
    return PADDED_ALIGN_BYTES if element(type_).bits < 8 else MOST_ALIGN_BYTES
