"""What a machine declares: tensors, instructions, parameters and constraints, each known by the name it is given.

Tracing, the checks and the making of problems ask this of a machine; `Machine` adds what happens when a class is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from tinygpu.language.heuristic import HEURISTICS, Heuristic
from tinygpu.language.instruction import Group, Instruction
from tinygpu.language.parameters import Choice, DeclarationError, Dim, Named, Option, Param, UnknownLayout
from tinygpu.language.posing import problem
from tinygpu.language.problem import Problem
from tinygpu.language.require import Require
from tinygpu.language.route import Route
from tinygpu.language.tensors import Scalar, TensorDeclaration
from tinygpu.users_code import line_under_way

Structure = tuple[tuple[str, str | int], ...]


class _Namespace(dict[str, Any]):
    """A class body in which a declaration learns its name as soon as it is assigned."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self.places: dict[str, str] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.places[key] = line_under_way()
        if isinstance(value, (Named, Instruction, Route, Group)) and key in RESERVED:
            raise DeclarationError(f"{self.title}.{key}: this name belongs to Machine; choose another one")
        if isinstance(value, Named):
            if key in self and self[key] is not value:
                raise DeclarationError(f"{self.title}.{key}: declared twice; every declaration has a name of its own")
            try:
                value.bind_name(key)
            except DeclarationError as error:
                raise DeclarationError(f"{self.title}.{error}") from None
        super().__setitem__(key, value)


class _DeclaredType(type):
    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **kwargs: Any) -> _Namespace:
        return _Namespace(name)

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        places = namespace.places if isinstance(namespace, _Namespace) else {}
        return super().__new__(cls, name, bases, {**namespace, "_places": places}, **kwargs)


class Declared(metaclass=_DeclaredType):
    """What can be asked of a machine: what it declares, by kind, and what it says of itself."""

    heuristics: ClassVar[tuple[str | Heuristic, ...]] = HEURISTICS
    # Whether small integers give the reference's result bit for bit; False for machines that divide or approximate.
    exact: ClassVar[bool] = True
    # Relative error that approximate instructions (ex2, tanh, ...) add to a result, of random inputs.
    approximation: ClassVar[float] = 0.0
    # The type in which operators between tiles compute: narrower operands are converted to it, results where stored.
    compute: ClassVar[str] = ""
    # Whether x * y + z may be rounded once, by the declared instruction whose sign is "fma".
    contract: ClassVar[bool] = False
    # The operation in NumPy, a static method: takes inputs, scalars and options by name, and gives the output, or a
    # dict of several.
    reference: ClassVar[Callable[..., Any]]

    def program(self, p: Any) -> None:
        """What a machine does; see `Machine`."""
        raise NotImplementedError

    # -- what is declared ------------------------------------------------------------------------------------------
    @classmethod
    def declarations(cls, kind: type) -> tuple[Any, ...]:
        """Those of one kind, in the order in which they are written; a derived class's own come last."""
        return tuple(value for value in _declared(cls).values() if isinstance(value, kind))

    @classmethod
    def dim_names(cls) -> tuple[str, ...]:
        return tuple(d.name for d in cls.declarations(Dim))

    @classmethod
    def dim_values(cls) -> dict[str, tuple[int, ...]]:
        """Per dim the values that it may have; () for any."""
        return {d.name: d.values for d in cls.declarations(Dim)}

    @classmethod
    def following_dims(cls) -> tuple[Dim, ...]:
        """Those that follow from other dims and options, in their order."""
        return tuple(d for d in cls.declarations(Dim) if d.follows is not None)

    @classmethod
    def smallest_dims(cls) -> dict[str, int]:
        """The smallest problem: 1 for every dim, and the first value of one that lists them."""
        return {name: values[0] if values else 1 for name, values in cls.dim_values().items()}

    @classmethod
    def params(cls) -> tuple[Param, ...]:
        return cls.declarations(Param)

    @classmethod
    def choices(cls) -> tuple[Choice, ...]:
        return cls.declarations(Choice)

    @classmethod
    def option_declarations(cls) -> tuple[Option, ...]:
        return cls.declarations(Option)

    @classmethod
    def tensor_declarations(cls) -> tuple[TensorDeclaration, ...]:
        return cls.declarations(TensorDeclaration)

    @classmethod
    def scalar_declarations(cls) -> tuple[Scalar, ...]:
        return cls.declarations(Scalar)

    @classmethod
    def requirements(cls) -> tuple[Require, ...]:
        return cls.declarations(Require)

    @classmethod
    def layouts(cls) -> tuple[UnknownLayout, ...]:
        return cls.declarations(UnknownLayout)

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        """Whether the tensor exists under these options; a machine with optional operands overrides it."""
        return True

    @classmethod
    def uses_scalar(cls, name: str, options: dict[str, Any]) -> bool:
        """Whether the scalar exists under these options; a machine with optional scalars overrides it."""
        return True

    @classmethod
    def scalars(cls, options: Mapping[str, Any]) -> tuple[Scalar, ...]:
        """The scalars that exist under these options: those that a launch gives."""
        return tuple(s for s in cls.scalar_declarations() if cls.uses_scalar(s.name, dict(options)))

    @classmethod
    def precision(cls, options: dict[str, Any]) -> tuple[bool, float]:
        """(exact, approximation) under these options."""
        return cls.exact, cls.approximation

    @classmethod
    def misfit(cls, problem: Problem) -> str:
        """Why the machine itself, as it is declared, does not take a problem; "" takes it."""
        return ""

    @classmethod
    def refuses(cls, problem: Problem) -> str:
        """Why a combination of types, orders and options that are each on offer is not taken; "" takes it."""
        return ""

    @classmethod
    def summary(cls) -> str:
        """The first line of the machine's docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    def structures(cls) -> Iterator[Structure]:
        """Every combination of the structural choices, as (attribute, label) pairs."""
        declared = cls.choices()
        for labels in itertools.product(*[c.labels for c in declared]):
            yield tuple((c.name, label) for c, label in zip(declared, labels, strict=True))

    @classmethod
    def problem(cls, **dims: Any) -> Problem:
        """A problem of this machine: dims by name.

        `dtypes=`, `majors=`, `lds=`, `strides=`, `aligns=`, `options=` and `following=` are as in
        `tinygpu.language.posing.problem`.
        """
        words = ("dtypes", "majors", "lds", "strides", "aligns", "options", "following")
        extra = {k: dims.pop(k) for k in words if k in dims}
        return problem(cls, dims, **extra)

    @classmethod
    def _ships(cls) -> bool:
        """Whether the class is one of the package's own: it is not the reader's to mend, and tests have traced it."""
        return cls.__module__.startswith("tinygpu.machines.")

    @classmethod
    def _place_of(cls, name: str) -> str:
        """`file.py:12`, where the class or one that it derives from says what a name is; "" where none does."""
        return next((vars(base)["_places"][name] for base in cls.__mro__ if name in vars(base).get("_places", ())), "")

    @classmethod
    def _own_place(cls) -> str:
        """`file.py:12`, the first line of what the class itself says; "" for a machine that ships."""
        return "" if cls._ships() else next(iter(vars(cls).get("_places", {}).values()), "")

    # -- inside a trace --------------------------------------------------------------------------------------------
    def own_instructions(self) -> Iterator[Instruction | Group]:
        """Those that the class declares, and groups of them, in their order; of a Choice the one that is chosen."""
        for name in _declared(type(self)):
            value = getattr(self, name)
            if isinstance(value, (Instruction, Group)):
                yield value

    def attribute_of(self, instruction: Any) -> str:
        """The name under which the class declares an instruction or route."""
        for base in type(self).__mro__:
            for name, value in _written(base).items():
                if value is instruction or (isinstance(value, Choice) and any(o is instruction for o in value.options)):
                    return name
        for name, value in vars(self).items():
            if value is instruction:
                return name
        return str(instruction)


# A machine is asked for its declarations some thirty times per structure, and a class has a hundred other attributes.
@lru_cache(maxsize=512)
def _written(cls: type) -> Mapping[str, Any]:
    """The declarations in the body of one class."""
    return {name: value for name, value in vars(cls).items() if isinstance(value, (Named, Instruction, Route, Group))}


@lru_cache(maxsize=512)
def _declared(machine: type[Declared]) -> Mapping[str, Any]:
    """All declarations of a machine: those of the classes that it derives from, less the names that it gives anew."""
    found: dict[str, Any] = {}
    for base in reversed(machine.__mro__):
        for name in vars(base):
            found.pop(name, None)
        found |= _written(base)
    return found


RESERVED = frozenset(name for name in dir(Declared) if not name.startswith("__"))
