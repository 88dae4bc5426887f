"""The user's class: a small machine for one operation.

A machine declares tensors, instructions, parameters, constraints, a `program` and a `reference`. When the class is
made, its program is traced once for every structure (every combination of its Choices) with parameters as symbols, so
that a machine that cannot work fails here, with a sentence that names the class and the attribute. Of the machines that
ship, tests do this; where they are imported, the structures that are asked for are traced, and when they are asked for.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language.declared import Declared
from tinygpu.language.heuristic import HEURISTICS, Heuristic
from tinygpu.language.inputs import mistake_in_inputs
from tinygpu.language.instruction import Group, Instruction
from tinygpu.language.names import mistake_in_names
from tinygpu.language.parameters import DeclarationError, Dim
from tinygpu.language.reference import mistake_in_reference
from tinygpu.language.route import Route
from tinygpu.language.trace import trace_default
from tinygpu.language.tracing.tracer import Tracer
from tinygpu.users_code import at

# Types in which operators may compute.
COMPUTED = ("f64", "f32", "f16", "bf16")
# Kinds of instructions of one machine.
MOST_KINDS = 12


class Machine(Declared):
    """Base class of machines; see the guide for a first one."""

    def program(self, p: Tracer) -> None:
        """What the machine does, written with the verbs of `p`."""
        raise NotImplementedError

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.program is Machine.program:
            return  # a base class for other machines
        try:
            _check(cls)
        except DeclarationError as error:
            named = str(error).removeprefix(f"{cls.__name__}.").partition(":")[0]
            raise at(error, cls._place_of(named)) from error.__cause__
        if not cls._ships():
            trace_default(cls)
        _check_size(cls)


def _check(cls: type[Machine]) -> None:
    title = cls.__name__
    if not cls.dim_names():
        raise DeclarationError(f"{title}: a machine declares at least one Dim")
    if not any(t.access != "in" for t in cls.tensor_declarations()):
        raise DeclarationError(f"{title}: a machine declares at least one Output or InOut")
    if not hasattr(cls, "reference"):
        raise DeclarationError(f"{title}.reference: a machine says what it computes, as a static method in NumPy")
    named = (*cls.dim_names(), *(p.name for p in cls.params()))
    wrong = mistake_in_names(cls) or mistake_in_reference(cls, named)
    if wrong:
        of_all = wrong.startswith(("a kernel", "the memories", "two memories"))
        raise DeclarationError(f"{title}{': ' if of_all else '.'}{wrong}")
    for name in cls.heuristics:
        if name not in HEURISTICS and not isinstance(name, Heuristic):
            raise DeclarationError(
                f"{title}.heuristics: unknown heuristic {name!r}; known: {', '.join(HEURISTICS)}, and instances of a "
                "Heuristic of your own"
            )
    before = {d.name for d in cls.declarations(Dim) if d.follows is None} | {o.name for o in cls.option_declarations()}
    for d in cls.following_dims():
        for name in d.reads:
            if name not in before:
                raise DeclarationError(
                    f"{title}.{d.name}: it follows from {name}, which is no dim before it and no Option"
                )
        before.add(d.name)
    known = {p.name for p in cls.params()} | set(cls.dim_names())
    for r in cls.requirements():
        for symbol_name in sorted(r.condition.symbols):
            head = symbol_name.split(".")[0]
            if symbol_name not in known and head not in {"device", *(t.name for t in cls.tensor_declarations())}:
                raise DeclarationError(f"{title}.{r.name}: the constraint names {symbol_name!r}, which is not declared")
    if cls.compute not in ("", *COMPUTED):
        listed = f"{', '.join(COMPUTED[:-1])} or {COMPUTED[-1]}"
        raise DeclarationError(
            f"{title}.compute: the type in which operators compute is {listed}, not {cls.compute!r}"
        )
    if not isinstance(cls.contract, bool):
        raise DeclarationError(
            f"{title}.contract: it is True or False, whether x * y + z may be rounded once, not {cls.contract!r}"
        )
    if wrong := mistake_in_inputs(cls):
        raise DeclarationError(f"{title}.{wrong}")


def _check_size(cls: type[Machine]) -> None:
    """A machine has about ten kinds of instructions; a group is one, with those that are declared beside it as well."""
    listed = [*cls.declarations(Instruction), *cls.declarations(Route), *(o for c in cls.choices() for o in c.options)]
    hops = [hop for i in listed for hop in (i.hops if isinstance(i, Route) else (i,)) if isinstance(hop, Instruction)]
    groups = cls.declarations(Group)
    usual = {type(i) for group in groups for i in group}
    count = len({type(hop) for hop in hops} - usual) + len(groups)
    if count > MOST_KINDS:
        raise DeclarationError(f"{cls.__name__}: a small machine has about ten instructions at most, not {count}")
