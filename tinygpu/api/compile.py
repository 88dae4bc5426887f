"""Compile: a machine and a problem, or arrays, to a function that runs on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tinygpu.api.choosing import Chosen, choose, choose_among
from tinygpu.api.machines import Family, family
from tinygpu.api.on_arrays import lines_of
from tinygpu.api.problems import Asked, problems, strides_of
from tinygpu.api.tune import Effort, NothingFound, tune
from tinygpu.devices import Device
from tinygpu.devices import device as find_device
from tinygpu.language.declared import Declared
from tinygpu.language.problem import Problem
from tinygpu.ptx.launching.binding import launcher, problem_of
from tinygpu.ptx.runtime.arrays import View, reader_of
from tinygpu.ptx.runtime.callable import CallableKernel, Signature
from tinygpu.ptx.runtime.calls import gpu_driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.errors import GpuUnavailable, WrongArray
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.search.recipe import Recipe, RecipeBook
from tinygpu.seeds import check_seed
from tinygpu.spaces.plan_space import space_of

# What the driver calls parts that the library knows by another name.
_DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": "H100-SXM5",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX-PRO-6000-Blackwell",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000-Blackwell",
    "NVIDIA Thor": "Jetson-Thor-T5000",
}


class CompiledKernel(CallableKernel):
    """A kernel as a function (see `CallableKernel`), with how it came to be.

    finalist  the candidate: its space, kernel, assembly and prediction
    origin    why this candidate: "given", "predicted", or what its recipe says
    """

    def __init__(self, finalist: Chosen, origin: str, context: Callable[[], Context]) -> None:
        machine, problem = finalist.space.machine, finalist.space.problem
        first, *then = [(p.built.kernel.ptx.encode(), p.assembly.loadable) for p in finalist.parts]
        signature = Signature(
            machine.__name__,
            tuple(o.name for o in problem.operands if o.access != "out"),
            tuple(o.name for o in problem.operands if o.access == "out"),
            tuple(s.name for s in machine.scalars(dict(problem.options))),
        )
        super().__init__(signature, launcher(finalist.kernels), context, *first, then=then)
        self.finalist = finalist
        self.origin = origin

    @property
    def ptx(self) -> str:
        return self.finalist.ptx

    @property
    def point(self) -> dict[str, int | str]:
        return dict(self.finalist.point)

    def __repr__(self) -> str:
        f = self.finalist
        point = " ".join(f"{k}={v}" for k, v in self.point.items())
        return f"<{f.space.machine.__name__} for {f.space.problem} on {f.space.device.name} ({self.origin}): {point}>"


def compile(
    machine: str | type[Declared] | Family,
    problem: Any = None,
    *arrays: Any,
    device: str | Device | None = None,
    options: Mapping[str, Any] | None = None,
    point: Mapping[str, int | str] | None = None,
    recipes: RecipeBook | None = None,
    seconds: float = 20.0,
    seed: int = 0,
    context: Callable[[], Context] | None = None,
) -> CompiledKernel:
    """The kernel of a machine, or of the best machine of a family, for a problem: `kernel = compile("matmul", a, b)`.

    machine  a name as on the command line, a machine, or a family
    problem  dims ({"m": 4096, ...}), an `Asked` or a `Problem`; or the first of the arrays
    arrays   one per input, in the machine's order, and the outputs behind them where their layout matters; dims, types,
             strides and alignments are read off them
    device   a GPU of the library to compile for; by default the GPU that is here
    options  the machine's options, where arrays are given
    point    the candidate, or some of its parameters; the rest is chosen by the predictor
    recipes  what was measured before: a candidate that is known for machine, problem and device is taken
    seconds  how long a search goes on at most, where no recipe is known
    context  opens the GPU; by default the first one

    The kernel is verified in the emulator before it is given. Raises GpuUnavailable without a GPU and a device,
    WrongArray for arrays that do not fit, ProblemError where no machine takes the problem, NothingFound where no
    candidate is legal or the verification fails, and NotAdmitted for a point that is not in the space.
    """
    check_seed(seed)
    chosen = _family(machine)
    open_gpu = _default_context if context is None else context
    asked = _asked(chosen, problem, arrays, options or {})
    target = find_device(device) if device is not None else _device_here(open_gpu)
    if point is not None:
        finalist, origin = choose_among(chosen, asked, target, point), "given"
    else:
        known = _known(chosen, asked, target, recipes)
        if known is None:
            tuned = tune(chosen, asked, target, Effort(seconds=seconds, seed=seed))
            if not tuned.verification.passed:
                raise NothingFound(f"the best candidate is wrong in the emulator: {tuned.verification}")
            return CompiledKernel(tuned.winner, "predicted", open_gpu)
        finalist, origin = known
    checked = verify_kernels(finalist.kernels, seed=seed, orders=("late", "early"), lines=lines_of(finalist))
    if not checked.passed:
        raise NothingFound(f"this candidate is wrong in the emulator: {checked}")
    return CompiledKernel(finalist, origin, open_gpu)


def library_device(driver_name: str) -> Device:
    """The device of the library that the driver calls so: "NVIDIA H100 80GB HBM3". Raises GpuUnavailable."""
    try:
        return find_device(_DRIVER_NAMES.get(driver_name, driver_name))
    except ValueError:
        raise GpuUnavailable(
            f"the library has no profile of {driver_name}; give device=... (a similar GPU, or a file of your own: see "
            "docs/devices.md)"
        ) from None


@cache
def _default_context() -> Context:
    return open_context(gpu_driver())


def device_here() -> Device:
    """The device of the library that the first GPU here is. Raises GpuUnavailable."""
    return library_device(_default_context().limits.name)


def _device_here(open_gpu: Callable[[], Context]) -> Device:
    try:
        return library_device(open_gpu().limits.name)
    except GpuUnavailable as missing:
        raise GpuUnavailable(f"{missing}; to compile for a GPU that is elsewhere, give device=...") from None


def _family(machine: str | type[Declared] | Family) -> Family:
    if isinstance(machine, str):
        return family(machine)
    return machine if isinstance(machine, Family) else Family(machine.__name__, (machine,))


def _asked(chosen: Family, first: Any, rest: tuple[Any, ...], options: Mapping[str, Any]) -> Asked:
    """What was said of the problem, in whichever form."""
    if first is None:
        raise WrongArray(f"{chosen.name} needs a problem: dims, as in {{'m': 4096, ...}}, or arrays")
    if not isinstance(first, (Mapping, Asked, Problem)):
        return _asked_of_arrays(chosen, (first, *rest), options)
    if rest:
        raise WrongArray(f"{chosen.name} takes a problem or arrays, not both")
    if isinstance(first, Asked):
        return first
    if isinstance(first, Problem):
        return Asked.like(first)
    return Asked(dict(first), options=options)


def _asked_of_arrays(chosen: Family, arrays: tuple[Any, ...], options: Mapping[str, Any]) -> Asked:
    """The problem that arrays pose; the first machine of the family says which array is which tensor."""
    machine = chosen.machines[0]
    tensors = machine.tensor_declarations()
    switches = {o.name: options.get(o.name, o.default) for o in machine.option_declarations()}
    used = [t for t in tensors if machine.uses_tensor(t.name, switches)]
    inputs = [t.name for t in used if t.access != "out"]
    names = (*inputs, *(t.name for t in used if t.access == "out"))
    if not len(inputs) <= len(arrays) <= len(names):
        raise WrongArray(
            f"{machine.__name__} takes {len(inputs)} array{'' if len(inputs) == 1 else 's'} ({', '.join(inputs)}), and "
            f"its results behind them; {len(arrays)} were given"
        )
    views: dict[str, View] = {n: reader_of(a, n).view(a, n) for n, a in zip(names, arrays, strict=False)}
    posed = problem_of(machine, views, options)
    operands = [o for o in posed.operands if o.name in views]
    return Asked(
        posed.dim,
        {o.name: o.dtype.name for o in operands},
        {o.name: o.major for o in operands},
        {o.name: o.ld for o in operands},
        {o.name: o.align_bytes for o in operands},
        options,
        strides_of(operands),
    )


def _known(chosen: Family, asked: Asked, target: Device, recipes: RecipeBook | None) -> tuple[Chosen, str] | None:
    """The kernel of the best recipe of any machine of the family."""
    if recipes is None:
        return None
    found: list[tuple[Recipe, type[Declared], Problem]] = []
    for machine, posed in problems(chosen, asked)[0]:
        recipe = recipes.best(machine.__name__, posed.to_json(), target.name)
        if recipe is not None:
            found.append((recipe, machine, posed))
    if not found:
        return None
    recipe, machine, posed = min(found, key=lambda f: f[0].seconds)
    return choose(space_of(machine, posed, target), recipe.point), recipe.said
