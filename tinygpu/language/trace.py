"""Traces a machine: (machine, signature, structure) to a Program and the constraints that it brings."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sympy

from tinygpu.constraints.constraint import Constraint
from tinygpu.language.bound_tensor import BoundTensor
from tinygpu.language.declared import Declared, Structure
from tinygpu.language.derive import derived_constraints
from tinygpu.language.dominance import dominance, preferred
from tinygpu.language.handover import check_handover
from tinygpu.language.inputs import input_constraints
from tinygpu.language.known import check_known
from tinygpu.language.parameters import Choice, DeclarationError, Option, Size
from tinygpu.language.posing import problem
from tinygpu.language.problem import Problem, Signature, tensors
from tinygpu.language.tensors import Tensor
from tinygpu.language.tracing.passes import ROW_VERBS, Passes
from tinygpu.language.tracing.tracer import Tracer
from tinygpu.language.under_way import check_sums_under_way
from tinygpu.language.waiting import waiting
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.schedule import schedule
from tinygpu.program.tree import expressions, walk
from tinygpu.users_code import at, raised_by_them, said, where

Sizes = tuple[tuple[str, int], ...]  # of the dims that are listed: (name, value)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One structure of a machine.

    constraints  what instructions, memories, the device and the author demand of its parameters
    axes         names of the parameters that occur in it
    """

    program: Program
    constraints: tuple[Constraint, ...]
    axes: tuple[str, ...]


def trace(machine: type[Declared], given: Problem, structure: Structure) -> Trace:
    """The program of one structure for problems of this signature."""
    listed = tuple((name, given.dim[name]) for name, values in machine.dim_values().items() if values)
    return _trace(machine, given.signature, listed, structure)


def preferences(machine: type[Declared], given: Problem, structure: Structure) -> tuple[Constraint, ...]:
    """Dominance by ordered choices: what an earlier option can do, a later one need not be searched for."""
    mine = trace(machine, given, structure)
    out = []
    for choice in machine.choices():
        chosen = dict(structure)[choice.name]
        place = choice.labels.index(chosen)
        if not choice.ordered or place == 0:
            continue
        label = choice.labels[place - 1]
        other = trace(machine, given, tuple((k, label if k == choice.name else v) for k, v in structure))
        out.append(preferred(choice, mine.constraints, other.constraints, str(label)))
    return tuple(out)


def trace_default(machine: type[Declared]) -> tuple[Trace, ...]:
    """Traces every structure for the machine's default types, so that mistakes show when the class is made."""
    default = problem(machine, machine.smallest_dims(), following=False)
    traces = tuple(trace(machine, default, structure) for structure in machine.structures())
    impossible = [_impossible(traced) for traced in traces]
    if all(impossible):
        sentence = f"it can never work, whatever the parameters: {impossible[0]}"
        raise at(DeclarationError(f"{machine.__name__}.program: {sentence}"), machine._place_of("program"))
    return traces


def _impossible(traced: Trace) -> str:
    """The sentence of a constraint of legality that no parameter can satisfy; "" where there is none."""
    return next((c.sentence for c in traced.constraints if c.kind == "legality" and c.condition.same(False)), "")


@lru_cache(maxsize=512)
def _trace(machine: type[Declared], signature: Signature, listed: Sizes, structure: Structure) -> Trace:
    made = tensors_of(machine, signature, listed)
    instance = _instance(machine, made, dict(signature[1]), listed, structure)
    tracer = Tracer(instance)
    for t in made:
        setattr(instance, t.name, BoundTensor(t, trace=tracer))
    try:
        instance.program(tracer)
    except DeclarationError as error:
        here = f"{machine.__name__}.program: "
        if str(error).startswith(here):
            raise
        raise DeclarationError(f"{here}{error}") from error
    except AttributeError as error:
        raise DeclarationError(f"{machine.__name__}.program: {_unknown(error, instance, tracer)}") from error
    except (TypeError, ValueError) as error:
        sentence = said(error) if raised_by_them(error) else str(error)
        place = "" if where(error) else machine._place_of("program")
        raise at(DeclarationError(f"{machine.__name__}.program: {sentence}"), place) from error
    except Exception as error:
        raise DeclarationError(f"{machine.__name__}.program: {said(error)}") from error
    try:
        grid, body = tracer.finish()
        scalars = tuple(n.ScalarArgument(s.name, s.dtype) for s in machine.scalars(dict(signature[1])))
        program = Program(
            machine.__name__,
            structure,
            made,
            scalars,
            grid,
            tuple(tracer.roles),
            tuple(tracer.pipelines),
            body,
        )
        sizes = check_known(machine, program)
        check_handover(program)
        check_sums_under_way(program)
        program = schedule(program)
        _check_outputs(machine, program)
        slots = waiting(program)
    except DeclarationError as error:
        # of the pipeline that it is about, where it names one
        about = (place for name, place in tracer.places.items() if repr(name) in str(error))
        raise at(error, next(about, machine._place_of("program"))) from error.__cause__
    required = [r for r in machine.requirements() if r.asked(structure)]
    own = [r.constraint(machine.__name__, "" if machine._ships() else machine._place_of(r.name)) for r in required]
    drawn = input_constraints(machine, machine.__name__, made, dict(signature[1]))
    legal = _distinct([*tracer.constraints, *sizes, *derived_constraints(program), *slots, *own, *drawn])
    constraints = (*legal, *dominance(program, legal, machine.params(), machine.choices()))
    used = {s for c in constraints for s in c.condition.symbols} | {s for e in expressions(program) for s in e.symbols}
    axes = tuple(p.name for p in machine.params() if p.name in used)
    return Trace(program, constraints, axes)


def _unknown(error: AttributeError, instance: Declared, tracer: Tracer) -> str:
    """A sentence for a name that does not exist."""
    if error.obj is instance:
        declared = [name for name in dir(type(instance)) if not name.startswith("_") and name not in dir(Declared)]
        return f"the machine declares no {error.name!r}; it declares {', '.join(declared)}"
    if error.obj is tracer:
        return f"there is no verb p.{error.name}"
    if isinstance(error.obj, BoundTensor):
        offered = [name for name in dir(error.obj) if not name.startswith("_")]
        return f"the tensor {error.obj.name} has no .{error.name}{_meant(error, offered)}"
    if isinstance(error.obj, Passes):
        return f"the row that p.passes gives has no .{error.name}{_meant(error, ROW_VERBS)}"
    return said(error) if raised_by_them(error) else str(error)


def _meant(error: AttributeError, offered: Sequence[str]) -> str:
    """The nearest name that there is, or all of them."""
    near = difflib.get_close_matches(str(error.name), offered, 1)
    return f"; did you mean .{near[0]}?" if near else f"; it has {', '.join(offered)}"


@lru_cache(maxsize=512)  # all structures have the same
def tensors_of(machine: type[Declared], signature: Signature, listed: Sizes) -> tuple[Tensor, ...]:
    """The tensors of a signature, without numbers but those of dims that are listed."""
    dims = machine.smallest_dims() | dict(listed)
    named = {name: (kind, major) for name, kind, major in signature[0]}
    full = problem(
        machine,
        dims,
        dtypes={k: v[0] for k, v in named.items()},
        majors={k: v[1] for k, v in named.items()},
        options=dict(signature[1]),
        following=False,
    )
    return tensors(full, machine.tensor_declarations())


def _instance(
    machine: type[Declared], made: tuple[Tensor, ...], options: dict[str, Any], listed: Sizes, structure: Structure
) -> Declared:
    instance = machine.__new__(machine)
    present = {t.name for t in made}
    for declared in machine.tensor_declarations():
        if declared.name not in present:
            setattr(instance, declared.name, None)
    used = {s.name for s in machine.scalars(options)}
    for s in machine.scalar_declarations():
        setattr(instance, s.name, n.ScalarArgument(s.name, s.dtype) if s.name in used else None)
    for o in machine.declarations(Option):
        setattr(instance, o.name, options[o.name])
    for name, size in listed:
        setattr(instance, name, Size(size, name))
    chosen = dict(structure)
    for c in machine.declarations(Choice):
        setattr(instance, c.name, c.option(chosen[c.name]))
    return instance


def _check_outputs(machine: type[Declared], program: Program) -> None:
    written = {tile.tensor.name for s in walk(program.body) for tile in s.writes if tile.tensor}
    for t in program.tensors:
        if t.access != "in" and t.name not in written:
            raise DeclarationError(
                f"{machine.__name__}.program: nothing is stored into {t.name}, which is declared {t.access}"
            )


def _distinct(constraints: list[Constraint]) -> tuple[Constraint, ...]:
    """Each condition once, under its first name; another condition under a name already taken gets a number."""
    conditions = set()
    names: dict[str, int] = {}
    out = []
    for c in constraints:
        node = c.condition.sympy
        if node == sympy.true or node in conditions:
            continue
        conditions.add(node)
        names[c.name] = names.get(c.name, 0) + 1
        if names[c.name] > 1:
            c = replace(c, name=f"{c.name} ({names[c.name]})")
        out.append(c)
    return tuple(out)
