"""How a kernel becomes a fixture: PTX text, with the facts that a launch needs in its first line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Line tables would put this folder's place into the PTX.
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel, compiled in one way for each of some targets.

    kernel     the Triton function
    types      types of its arguments, in order
    constants  its compile-time arguments
    options    num_warps, num_stages, num_ctas
    targets    compute capabilities: 80, 90, 100, 120
    variant    told apart in the name of the fixture
    divisible  pointers and integers are multiples of 16
    """

    kernel: Any
    types: Sequence[str]
    constants: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    targets: Sequence[int] = (80,)
    variant: str = ""
    divisible: bool = True

    def name(self, target: int) -> str:
        """File name without its ending."""
        variant = f"-{self.variant}" if self.variant else ""
        return f"{self.kernel.fn.__name__}{variant}.sm_{target}"


def compiled(case: Case, target: int) -> str:
    """The fixture's text."""
    names = case.kernel.arg_names
    signature = {name: case.types[k] if k < len(case.types) else "constexpr" for k, name in enumerate(names)}
    divisible = {
        (k,): [["tt.divisibility", 16]]
        for k, t in enumerate(case.types)
        if t[0] == "*" or (t in ("i32", "i64") and case.divisible)
    }
    values = {(names.index(name),): value for name, value in case.constants.items()}
    source = ASTSource(case.kernel, signature, values, divisible)
    if hasattr(case.kernel, "is_gluon") and case.kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        source = GluonASTSource(case.kernel, signature, values, divisible)
    result = triton.compile(source, target=GPUTarget("cuda", target, 32), options=dict(case.options))
    about = result.metadata
    facts = {
        "kernel": case.kernel.fn.__name__,
        "shared": about.shared,
        "warps": about.num_warps,
        "ctas": about.num_ctas,
        "scratch": getattr(about, "global_scratch_size", 0),
        "pointers": _trailing_pointers(result.asm["ptx"], case.types),
        "types": dict(zip(names, case.types, strict=False)),
        "constants": {name: getattr(value, "name", value) for name, value in case.constants.items()},
        "descriptors": [dict(d) if d else None for d in getattr(about, "tensordesc_meta", None) or []],
        "triton": triton.__version__,
    }
    return f"// {json.dumps(facts)}\n{_stripped(result.asm['ptx'])}\n"


def _trailing_pointers(text: str, types: Sequence[str]) -> int:
    """How many pointers to scratch memory the compiler put behind the kernel's own arguments."""
    header = text[text.index(".entry") : text.index("{", text.index(".entry"))]
    own = sum(1 + 2 * _descriptor_rank(t) if t.startswith("tensordesc") else 1 for t in types)
    return header.count(".param") - own


def _descriptor_rank(kind: str) -> int:
    stated = re.search(r"input_rank=(\d+)", kind)
    return int(stated[1]) if stated else kind.split("]")[0].count(",") + 1


def _stripped(text: str) -> str:
    """The text without comments, indents and debug sections."""
    text = text.split("\t.section")[0]
    lines = (re.sub(r"\s*//.*", "", line).strip() for line in text.split("\n"))
    return "\n".join(re.sub(r"\s+", " ", line) for line in lines if line)
