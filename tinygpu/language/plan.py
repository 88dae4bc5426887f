"""The user's class for several kernels as one operation: steps that are machines, and what they leave for each other.

A plan declares tensors, workspaces, parameters, steps and a `reference` of the whole. When the class is made, the names
of every step are bound to the plan's, and what the steps hand to each other is followed in their order, so that a plan
that cannot work fails here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tinygpu.language.declared import Declared
from tinygpu.language.inputs import mistake_in_inputs
from tinygpu.language.instruction import Instruction
from tinygpu.language.names import mistake_in_names
from tinygpu.language.parameters import AccessPattern, Choice, DeclarationError, Named, Option, UnknownLayout
from tinygpu.language.posing import problem as posed
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.language.reference import mistake_in_reference
from tinygpu.language.route import Route
from tinygpu.language.step import BoundStep, Step
from tinygpu.language.step_binding import bind, known_names
from tinygpu.language.strides import order_of
from tinygpu.language.tensors import TensorDeclaration
from tinygpu.language.wiring import check_wiring
from tinygpu.language.workspace import Workspace
from tinygpu.users_code import at

# The classmethods below, whose names no declaration may have.
_RESERVED = frozenset({"step_declarations", "workspace_declarations", "bound_steps"})


class Plan(Declared):
    """Base class of plans; see the guide for a first one."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            if isinstance(value, Named) and name in _RESERVED:
                raise DeclarationError(f"{cls.__name__}.{name}: this name belongs to Plan; choose another one")
        if not cls.step_declarations():
            if "reference" in vars(cls):
                raise DeclarationError(f"{cls.__name__}: a plan has at least one Step")
            return  # a base class for other plans
        try:
            _check(cls)
        except DeclarationError as error:
            named = str(error).removeprefix(f"{cls.__name__}.").partition(":")[0]
            raise at(error, cls._place_of(named)) from error.__cause__

    @classmethod
    def step_declarations(cls) -> tuple[Step, ...]:
        """In the order in which they run; one that a derived class gives anew keeps its place."""
        order = dict.fromkeys(n for base in reversed(cls.__mro__) for n, v in vars(base).items() if isinstance(v, Step))
        known = {step.name: step for step in cls.declarations(Step)}
        return tuple(known[name] for name in order if name in known)

    @classmethod
    def workspace_declarations(cls) -> tuple[Workspace, ...]:
        return cls.declarations(Workspace)

    @classmethod
    def bound_steps(cls, options: Mapping[str, Any]) -> tuple[BoundStep, ...]:
        """The steps under these options, every name of their machines as an expression of the plan's names."""
        return _bound(cls, tuple(sorted(options.items())))

    @classmethod
    def misfit(cls, problem: Problem) -> str:
        """What a step does not take of the types and orders of a problem; "" where all fit."""
        return _misfit(cls, problem)


@lru_cache(maxsize=512)
def _bound(plan: type[Plan], options: tuple[tuple[str, Any], ...]) -> tuple[BoundStep, ...]:
    return tuple(bind(plan, step, dict(options)) for step in plan.step_declarations())


def _misfit(plan: type[Plan], problem: Problem) -> str:
    """What a step does not take of the types and orders of a problem; "" where all fit."""
    kinds = {o.name: (o.dtype, o.memory_order, o.major) for o in problem.operands}
    for step in plan.bound_steps(dict(problem.options)):
        declared = {t.name: t for t in step.machine.tensor_declarations()}
        chosen: dict[str, Any] = {}
        for own, tensor in step.tensors.items():
            if isinstance(tensor, Workspace):
                kind, order, major = tensor.dtype, order_of(tensor.rank, tensor.major), str(tensor.major)
            else:
                kind, order, major = kinds[tensor.name]
            leader = declared[own].follows
            able = declared[own].dtypes if leader is None else declared[own].dtypes_for(chosen[leader.name])
            chosen[own] = kind
            here = f"{own} of its step {step.name} ({step.machine.__name__})"
            if kind not in able:
                return f"{here} can be {', '.join(map(str, able))} here, and {tensor.name} is {kind}"
            if order not in {declared[own].order(m) for m in declared[own].majors}:
                return f"{here} is {' or '.join(declared[own].majors)}-major, and {tensor.name} is {major}-major"
    return ""


def _check(cls: type[Plan]) -> None:
    title = cls.__name__
    for kind, why in (
        (Instruction, "an instruction belongs to a machine"),
        (Route, "a route belongs to a machine"),
        (UnknownLayout, "an unknown layout belongs to a machine"),
        (AccessPattern, "an access pattern belongs to a machine"),
        (Choice, "a plan has Params, and the choices of its steps, which are theirs"),
    ):
        for stray in cls.declarations(kind):
            name = next(n for base in cls.__mro__ for n, v in vars(base).items() if v is stray)
            raise DeclarationError(f"{title}.{name}: {why}; the steps of a plan are machines that have such")
    if not cls.dim_names():
        raise DeclarationError(f"{title}: a plan declares at least one Dim")
    if not any(t.access != "in" for t in cls.tensor_declarations()):
        raise DeclarationError(f"{title}: a plan declares at least one Output or InOut")
    if not hasattr(cls, "reference"):
        raise DeclarationError(f"{title}.reference: a plan says what it computes, as a static method in NumPy")
    wrong = mistake_in_names(cls) or mistake_in_reference(cls, cls.dim_names())
    if wrong:
        raise DeclarationError(f"{title}.{wrong}")
    if wrong := mistake_in_inputs(cls):
        raise DeclarationError(f"{title}.{wrong}")
    for workspace in cls.workspace_declarations():
        unknown = sorted({s for d in workspace.dims for s in d.symbols} - known_names(cls))
        if unknown:
            raise DeclarationError(f"{title}.{workspace.name}: the plan declares no {unknown[0]!r}")
    for options in _all_options(cls):
        bound = cls.bound_steps(options)
        check_wiring(cls, bound, options)
    _check_used(cls)
    try:
        default = posed(cls, cls.smallest_dims(), following=False)
    except ProblemError as error:
        raise DeclarationError(str(error)) from None
    for step in cls.bound_steps(dict(default.options)):
        step.signature_problem(default)


def _all_options(cls: type[Plan]) -> list[dict[str, Any]]:
    """Every combination of the plan's options, the defaults first."""
    out: list[dict[str, Any]] = [{}]
    for option in cls.declarations(Option):
        out = [{**chosen, option.name: value} for value in option.values for chosen in out]
    return out


def _check_used(cls: type[Plan]) -> None:
    """Parameters and constraints name what is there, and every parameter decides something."""
    bound = [step for options in _all_options(cls) for step in cls.bound_steps(options)]
    used = {s for step in bound for e in step.environment().values() for s in e.symbols}
    used |= {s for w in cls.workspace_declarations() for d in w.dims for s in d.symbols}
    for p in cls.params():
        if p.name not in used:
            raise DeclarationError(f"{cls.__name__}.{p.name}: no step and no workspace uses this parameter")
    taken = {name for step in bound for name in step.scalars.values()}
    for s in cls.scalar_declarations():
        if s.name not in taken:
            raise DeclarationError(f"{cls.__name__}.{s.name}: no step takes this number")
    facts = {f"{t.name}.{fact}" for t in cls.tensor_declarations() for fact in _facts(t)}
    for r in cls.requirements():
        for name in sorted(r.condition.symbols - known_names(cls) - facts):
            if not name.startswith("device."):
                raise DeclarationError(
                    f"{cls.__name__}.{r.name}: the constraint names {name!r}, which is not declared"
                )


def _facts(tensor: TensorDeclaration) -> tuple[str, ...]:
    return ("ld", "align", *(f"stride{axis}" for axis in range(len(tensor.dims))))
