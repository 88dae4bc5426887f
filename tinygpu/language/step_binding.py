"""Binding the steps of a plan: every name of a machine is given one of the plan's, or an expression of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinygpu.expressions import Expr, Operand, expr, symbol
from tinygpu.language.declared import Declared
from tinygpu.language.instruction.base import with_article
from tinygpu.language.parameters import Choice, DeclarationError, Dim, Named, Option, Param
from tinygpu.language.step import Between, BoundStep, Step
from tinygpu.language.strides import order_of
from tinygpu.language.tensors import Scalar, TensorDeclaration
from tinygpu.language.workspace import Workspace


def bind(plan: type[Declared], step: Step, options: Mapping[str, Any]) -> BoundStep:
    """A step as it is under these options of the plan; raises DeclarationError where something does not fit."""
    return _Binding(plan, step, options).bound()


def known_names(plan: type[Declared]) -> frozenset[str]:
    """Names that expressions of a plan may use: its dims and parameters, and the private ones of its steps."""
    private = (f"{s.name}.{p.name}" for s in plan.declarations(Step) for p in s.machine.params())
    return frozenset((*plan.dim_names(), *(p.name for p in plan.params()), *private))


class _Binding:
    """The names of a step, kind by kind."""

    def __init__(self, plan: type[Declared], step: Step, options: Mapping[str, Any]) -> None:
        self.plan, self.step, self.machine, self.plan_options = plan, step, step.machine, options

    def bound(self) -> BoundStep:
        self._known_names()
        options = self._options()
        tensors = self._tensors(options)
        return BoundStep(
            self.step.name,
            self.machine,
            tensors,
            self._dims(tensors, options),
            self._params(),
            self._choices(),
            self._scalars(options),
            options,
        )

    def _error(self, sentence: str) -> DeclarationError:
        return DeclarationError(f"{self.plan.__name__}.{self.step.name}: {sentence}")

    def _all(self) -> dict[str, Any]:
        kinds = (TensorDeclaration, Dim, Param, Choice, Scalar, Option)
        return {d.name: d for kind in kinds for d in self.machine.declarations(kind)}

    def _known_names(self) -> None:
        known = self._all()
        for name in self.step.given:
            if name not in known:
                raise self._error(f"{self.machine.__name__} has no {name!r}; it has {', '.join(known)}")

    def _options(self) -> dict[str, Any]:
        out = {}
        for option in self.machine.option_declarations():
            value = self.step.given.get(option.name, option.default)
            if isinstance(value, Option):
                if not any(value is o for o in self.plan.option_declarations()):
                    raise self._error(f"{option.name} is given an Option that the plan does not declare")
                value = self.plan_options[value.name]
            if value not in option.values:
                listed = ", ".join(map(str, option.values))
                raise self._error(f"{option.name} of {self.machine.__name__} is {listed}, not {value!r}")
            out[option.name] = value
        return out

    def _tensors(self, options: Mapping[str, Any]) -> dict[str, Between]:
        mine: tuple[Between, ...] = (*self.plan.tensor_declarations(), *self.plan.declarations(Workspace))
        out: dict[str, Between] = {}
        for tensor in self.machine.tensor_declarations():
            given = self.step.given.get(tensor.name)
            if given is not None and not any(given is t for t in mine):
                raise self._error(
                    f"{tensor.name} of {self.machine.__name__} is given {_said(given)}; it takes a tensor or a "
                    "workspace that the plan declares"
                )
            if not self.machine.uses_tensor(tensor.name, dict(options)):
                continue
            if given is None:
                wanted = {"in": "reads", "out": "writes", "inout": "reads and writes"}[tensor.access]
                raise self._error(
                    f"{self.machine.__name__} {wanted} {tensor.name}, and nothing is given for it; give "
                    f"{tensor.name}=..., a tensor or a workspace of the plan"
                )
            if isinstance(given, TensorDeclaration) and not self.plan.uses_tensor(given.name, dict(self.plan_options)):
                chosen = " and ".join(f"{k}={v}" for k, v in self.plan_options.items())
                raise self._error(f"{tensor.name} is {given.name}, which the plan does not have with {chosen}")
            if len(given.dims) != len(tensor.dims):
                raise self._error(
                    f"{tensor.name} of {self.machine.__name__} has {_dims(tensor.dims)}, and {given.name} "
                    f"has {_dims(given.dims)}"
                )
            self._check_kind(tensor, given)
            out[tensor.name] = given
        return out

    def _check_kind(self, tensor: TensorDeclaration, given: Between) -> None:
        """Some type and order of the plan's tensor are ones that the machine takes."""
        kinds = (given.dtype,) if isinstance(given, Workspace) else given.dtypes
        if not set(kinds) & set(tensor.dtypes):
            raise self._error(
                f"{tensor.name} of {self.machine.__name__} is {' or '.join(map(str, tensor.dtypes))}, and {given.name} "
                f"is {' or '.join(map(str, kinds))}"
            )
        own = {tensor.order(major) for major in tensor.majors}
        if not own & orders_of(given):
            orders = (given.major,) if isinstance(given, Workspace) else given.majors
            raise self._error(
                f"{tensor.name} of {self.machine.__name__} is {' or '.join(tensor.majors)}-major, and {given.name} is "
                f"{' or '.join(orders)}-major"
            )

    def _dims(self, tensors: Mapping[str, Between], options: Mapping[str, Any]) -> dict[str, Expr]:
        out: dict[str, tuple[Expr, str]] = {}
        for dim in self.machine.declarations(Dim):
            if dim.name in self.step.given:
                out[dim.name] = self._number(dim.name, "dims and parameters of the plan"), "is given"
        for tensor in self.machine.tensor_declarations():
            if tensor.name not in tensors:
                continue
            given = tensors[tensor.name]
            for dim, at in zip(tensor.dims, given.dims, strict=True):
                size = _size(at, self.plan_options)
                if not isinstance(dim, Dim):
                    wanted = _size(dim, options)
                    if not wanted.same(size):
                        raise self._error(
                            f"{tensor.name} of {self.machine.__name__} is {wanted} long where {given.name} is {size}"
                        )
                    continue
                known, why = out.setdefault(dim.name, (size, f"of {given.name}"))
                if not known.same(size):
                    raise self._error(
                        f"the dim {dim.name} of {self.machine.__name__} is {known} ({why}) and {size} (of "
                        f"{given.name}); it is one number"
                    )
        for name, listed in self.machine.dim_values().items():
            if name not in out and len(listed) == 1:
                out[name] = expr(listed[0]), "by itself"
            if name in out and listed:
                self._check_listed(name, listed, out[name][0])
            if name not in out:
                raise self._error(
                    f"no tensor of {self.machine.__name__} says how large its dim {name} is; give {name}=..., an "
                    "expression of the plan's dims and parameters"
                )
        return {name: out[name][0] for name in self.machine.dim_names()}

    def _check_listed(self, name: str, listed: tuple[int, ...], size: Expr) -> None:
        """A dim of which the machine's program knows the values is a number, or a dim of the plan with values."""
        ours = next((d for d in self.plan.declarations(Dim) if d.values and size.same(d)), None)
        values = (int(size),) if size.is_number else ours.values if ours is not None else ()
        if not values or not set(values) <= set(listed):
            said = " or ".join(map(str, listed))
            raise self._error(
                f"the dim {name} of {self.machine.__name__} is {said}, as its program knows, and here it is {size}; "
                "give one of these, or a Dim of the plan that lists them"
            )

    def _params(self) -> dict[str, Expr]:
        out = {}
        for p in self.machine.params():
            if p.name not in self.step.given:
                out[p.name] = symbol(f"{self.step.name}.{p.name}")
                continue
            value = out[p.name] = self._number(p.name, "parameters of the plan")
            if value.is_number and int(value) not in p.values:
                raise self._error(f"{p.name} of {self.machine.__name__} is {_values(p)}, not {int(value)}")
            shared = next((q for q in self.plan.params() if value.same(q)), None)
            if shared is not None and not set(shared.values) & set(p.values):
                raise self._error(
                    f"{p.name} of {self.machine.__name__} is {_values(p)}, and {shared.name} is {_values(shared)}: no "
                    "value is both"
                )
        return out

    def _number(self, name: str, wanted: str) -> Expr:
        given = self.step.given[name]
        if isinstance(given, bool) or not isinstance(given, (int, Expr)):
            raise self._error(f"{name} of {self.machine.__name__} is given {_said(given)}; it takes {wanted}")
        unknown = sorted(expr(given).symbols - known_names(self.plan))
        if unknown:
            raise self._error(f"{name} is given {expr(given)}, and the plan declares no {unknown[0]!r}")
        return _plain(given)

    def _choices(self) -> dict[str, str | int]:
        out: dict[str, str | int] = {}
        for choice in self.machine.choices():
            if choice.name in self.step.given:
                given = self.step.given[choice.name]
                if given not in choice.labels:
                    listed = ", ".join(map(str, choice.labels))
                    raise self._error(f"{choice.name} of {self.machine.__name__} is {listed}, not {given!r}")
                out[choice.name] = given
        return out

    def _scalars(self, options: Mapping[str, Any]) -> dict[str, str]:
        out = {}
        for scalar in self.machine.scalars(options):
            given = self.step.given.get(scalar.name)
            if not isinstance(given, Scalar) or not any(given is s for s in self.plan.scalar_declarations()):
                what = "nothing" if given is None else _said(given)
                raise self._error(
                    f"the number {scalar.name} of {self.machine.__name__} is given {what}; it takes a Scalar that the "
                    "plan declares"
                )
            if given.dtype != scalar.dtype:
                raise self._error(
                    f"{scalar.name} of {self.machine.__name__} is {scalar.dtype}, and {given.name} is {given.dtype}"
                )
            out[scalar.name] = given.name
        return out


def orders_of(given: Between) -> set[tuple[int, ...]]:
    """The orders that a tensor of the plan may have, each as its axes, the fastest first."""
    if isinstance(given, Workspace):
        return {order_of(given.rank, given.major)}
    return {given.order(major) for major in given.majors}


def _size(dim: Any, options: Mapping[str, Any]) -> Expr:
    """A dim of a tensor: a Dim or an expression as it is, a number, or what an option says."""
    return expr(int(options[dim.name])) if isinstance(dim, Option) else _plain(dim)


def _plain(size: Operand) -> Expr:
    """A Dim or Param as the expression that it is."""
    return Expr(expr(size).sympy)


def _said(given: Any) -> str:
    if isinstance(given, Named) and given.name:
        return f"{given.name}, {with_article(type(given).__name__)}"
    return repr(given) if isinstance(given, (int, float, str)) else with_article(type(given).__name__)


def _dims(dims: Any) -> str:
    listed = ", ".join(d.name if isinstance(d, Option) else str(_plain(d)) for d in dims)
    return f"{len(dims)} dim{'' if len(dims) == 1 else 's'} ({listed})"


def _values(p: Param) -> str:
    return ", ".join(map(str, p.values))


__all__ = ["bind", "known_names", "orders_of"]
