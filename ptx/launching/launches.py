"""The launch of a kernel for a problem: the arrow from a kernel's description to what the runtime takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx.launching.kernel import Kernel, TensorMapSpec
from tinygpu.ptx.launching.kernels import Kernels, Stage
from tinygpu.ptx.runtime.launch import Argument, Bank, Launch, Map, Tensor, Workspace


def launch_of(kernel: Kernel, problem: Problem) -> Launch:
    """How `kernel` is launched for `problem`; raises LaunchError where the problem breaks a fact of the kernel."""
    kernel.check(problem)
    maps = []
    for spec in kernel.maps:
        maps.append(_map(spec, problem.operand(spec.tensor)))
    sizes = kernel.workspace_bytes(problem, 0)
    tiles = kernel.grid(problem)[0]
    ctas = kernel.grid(problem, tiles * kernel.rounds_of(problem))[0] if kernel.dealt else tiles
    numbers = {m.name: i for i, m in enumerate(kernel.maps)}
    places = {name: at for bank in kernel.banks for name, at in bank.places(problem).items()}
    arguments = []
    for p in kernel.parameters:
        if p.kind in ("pointer", "workspace"):
            arguments.append(Argument("address", p.name))
        elif p.kind == "map":
            arguments.append(Argument("map", p.name, map=numbers[p.name]))
        elif p.kind == "place":
            arguments.append(Argument("number", p.name, p.type, places[p.name]))
        elif p.kind == "scalar":
            arguments.append(Argument("scalar", p.name, p.type))
        else:
            value = problem.dim[p.name] if p.kind == "dim" else problem.environment()[f"{p.name}.{p.kind}"]
            arguments.append(Argument("number", p.name, p.type, value))
    return Launch(
        kernel.name,
        kernel.architecture,
        ctas,
        kernel.threads,
        kernel.cluster[0],
        kernel.smem_bytes,
        tuple(arguments),
        tensors_of(problem),
        tuple(maps),
        persistent=kernel.persistent,
        banks=tuple(Bank(b.name, b.size_bytes, tuple(b.places(problem).items())) for b in kernel.banks),
        workspaces=tuple(Workspace(w.name, sizes[w.name], w.zeroed, w.cta_bytes) for w in kernel.workspaces),
    )


def launch_of_kernels(kernels: Kernels) -> Launch:
    """How the kernels of a candidate are launched, one after another; raises LaunchError as `launch_of` does."""
    if not kernels.stages[0].name:
        return launch_of(kernels.stages[0].kernel, kernels.problem)
    tensors = tensors_of(kernels.problem)
    between = {o.name: o.extent_elems * o.dtype.bits // 8 for o in kernels.workspaces}
    first, *others = [_said_of_whole(stage, tensors, between) for stage in kernels.stages]
    return replace(first, then=tuple(others))


def _said_of_whole(stage: Stage, tensors: tuple[Tensor, ...], between: Mapping[str, int]) -> Launch:
    """The launch of one kernel with the names of the whole: its tensors are those, or workspaces."""
    launch = launch_of(stage.kernel, stage.problem)
    own = {w.name: f"{stage.name}.{w.name}" for w in launch.workspaces}
    names = {**stage.tensors, **stage.scalars, **own}

    def renamed(a: Argument) -> Argument:
        return replace(a, name=names[a.name]) if a.kind in ("address", "scalar") else a

    used = [name for name in dict.fromkeys(stage.tensors.values()) if name in between]
    handed = tuple(Workspace(name, between[name], zeroed=False) for name in used)
    return replace(
        launch,
        arguments=tuple(map(renamed, launch.arguments)),
        tensors=tensors,
        maps=tuple(replace(m, tensor=names[m.tensor]) for m in launch.maps),
        workspaces=(*handed, *(replace(w, name=own[w.name]) for w in launch.workspaces)),
        banks=tuple(replace(b, places=tuple((names[n], at) for n, at in b.places)) for b in launch.banks),
    )


def _map(spec: TensorMapSpec, operand: Operand) -> Map:
    strides = operand.strides()
    dims = tuple(operand.shape[a] for a in spec.order)
    bytes_between = tuple(strides[a] * operand.dtype.bits // 8 for a in spec.order[1:])
    if spec.piece:  # a fact of the kernel says that rows are whole pieces
        dims = (spec.piece, *dims[1:], dims[0] // spec.piece)
        bytes_between = (*bytes_between, spec.piece * operand.dtype.bits // 8)
    if operand.dtype.bits >= 8 or spec.padded:
        return Map(
            spec.tensor, operand.dtype.name, dims, bytes_between, spec.box, spec.swizzle_bytes, spec.atom_bytes,
        )  # fmt: skip
    together = 8 // operand.dtype.bits  # which are moved as the bytes that they share
    (along, *further), (inner, *rows) = dims, spec.box
    return Map(
        spec.tensor, "u8", (-(-along // together), *further), bytes_between, (inner // together, *rows),
        spec.swizzle_bytes,
    )  # fmt: skip


def tensors_of(problem: Problem) -> tuple[Tensor, ...]:
    """The operands of a problem, as the runtime takes them."""
    return tuple(Tensor(o.name, o.dtype.name, o.shape, o.strides(), o.align_bytes, o.access) for o in problem.operands)
