"""What every instruction says: which GPUs have it, how many threads it takes, what it occupies, and its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, all_of, any_of

Unit = Literal["lsu", "alu", "fma", "sfu", "tensor", "copy", "fp64"]
Scope = Literal["thread", "warp", "warpgroup", "cta", "cluster"]
# "bulk group": cp.async.bulk.commit_group (stores by TMA); "wgmma group": wgmma.commit_group.
Completion = Literal["", "commit group", "bulk group", "wgmma group", "mbarrier", "tcgen05 commit"]

# The oldest GPUs that kernels are written for, and what is said of an instruction that these have.
OLDEST_TARGET = 80
WRITTEN_FOR = f"kernels are written for sm_{OLDEST_TARGET} and later"


@dataclass(frozen=True, eq=False)
class Instruction:
    """One PTX-backed operation.

    target      oldest `.target` that has it, as a number: 80, 90, 100
    only        the compute capabilities that have it, where later ones do not ("a" targets: wgmma on 90); () otherwise
    isa         lowest PTX `.version` that has it, as (major, minor)
    scope       how many threads act as one
    unit        what it occupies
    completion  for an asynchronous instruction: what completes it
    proxy       through which proxy it touches shared memory
    source      where its facts come from
    traced_only  programs with it are traced, printed and counted, and no kernel is written
    """

    target: ClassVar[int] = OLDEST_TARGET
    only: ClassVar[tuple[int, ...]] = ()
    isa: ClassVar[tuple[int, int]] = (7, 0)
    scope: ClassVar[Scope] = "thread"
    unit: ClassVar[Unit] = "alu"
    completion: ClassVar[Completion] = ""
    proxy: ClassVar[Literal["generic", "async"]] = "generic"
    source: ClassVar[str] = ""
    traced_only: ClassVar[bool] = False

    @property
    def asynchronous(self) -> bool:
        return self.completion != ""

    @property
    def label(self) -> str:
        """The instruction's name in listings: its PTX spelling without operands."""
        return type(self).__name__

    def __str__(self) -> str:
        return self.label

    def target_rule(self) -> Constraint:
        return Constraint(
            f"{self.label} target",
            any_of([self._cc() == cc for cc in self.only]) if self.only else self._cc() >= self.target,
            since(self.label, self.target, self.only),
            source=self.label,
            judge="assembler",
            why=self.source,
        )

    def available(self, *types: DType) -> tuple[int, tuple[int, int]]:
        """(oldest target, lowest `.version`); `types` are those of the operands a and b of a MatrixMultiply."""
        return self.target, self.isa

    def suffix(self, *types: DType) -> Literal["", "a", "f"]:
        """What `.target` ends in: "a" where one architecture has it alone, "f" where later ones of its family have it
        too; `types` as of `available`.
        """
        return "" if not self.only else "a" if len(self.only) == 1 else "f"

    def unwritten(self) -> str:
        """Why no kernel can be written with it, as what follows its name; "" where one can."""
        return ""

    def _silent(self, name: str, *arguments: Any) -> str:
        """Why a method that gives PTX gives none for these arguments; "" where it does."""
        try:
            said = getattr(self, name)(*arguments)
        except Exception as error:  # the author's own code
            return f"cannot be written: {name}() raises {type(error).__name__}: {error}"
        given = isinstance(said, str) and bool(said.strip())
        return "" if given else f"cannot be written: {name}() gives {said!r}, and PTX is text"

    def _unsaid(self, *facts: str) -> str:
        """What of the facts that a family has no default for the class does not give."""
        missing = [fact for fact in facts if not getattr(self, fact, "")]
        return f"does not say its {and_of(missing)}" if missing else ""

    def _owes(self, family: type[Instruction], *names: str) -> str:
        """What of its family's interface the class does not state."""
        missing = [f"{name}()" for name in names if getattr(type(self), name) is getattr(family, name)]
        own = next(base.__name__ for base in type(self).__mro__ if base.__module__.startswith(__package__))
        return f"does not state {and_of(missing)}, as a {own} does" if missing else ""

    @staticmethod
    def _cc() -> Expr:
        from tinygpu.expressions import symbol

        return symbol("device.cc")

    def rule(self, name: str, condition: Expr | bool, sentence: str, judge: Any = "emulator") -> Constraint:
        """A legality constraint that this instruction brings."""
        title = f"{self.label} {name}"
        return Constraint(title, as_condition(condition), sentence, "legality", self.label, judge, self.source)


def as_condition(value: Expr | bool) -> Expr:
    return value if isinstance(value, Expr) else all_of([value])


def since(what: str, target: int, only: tuple[int, ...] = ()) -> str:
    """Which GPUs have `what`. Of what is as old as the oldest GPU that kernels are written for, PTX may say less."""
    if only:
        return f"{what} exists on {or_of([f'sm_{cc}' for cc in only])} only"
    return f"{what} exists from sm_{target} on" if target > OLDEST_TARGET else WRITTEN_FOR


def or_of(values: Sequence[int | str]) -> str:
    words = [str(v) for v in values]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def with_article(noun: str) -> str:
    """`an Input`, `a Param`."""
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def and_of(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
