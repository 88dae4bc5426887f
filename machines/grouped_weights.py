"""Operands of machines whose weights have 4 bits: groups of them along k share a scale, and a zero point where asked.

What a weight stands for is w * scale, or (w - zero) * scale: codes that lie around another number than 0 use all that
there are of them. Zero points are of the type of x, and need not be whole; each step is rounded to that type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Option, Output
from tinygpu.machines.operands import RESULTS, of

KINDS, GROUPS = ("f16", "bf16"), (32, 64, 128)  # of x; weights along k that share a scale
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class GroupedWeights(Machine):
    """y = x @ ((w - zeros) * scales): one scale, and one zero point, for each group of weights along k"""

    m, n, k, group = Dim(), Dim(), Dim(), Dim(*GROUPS)
    groups = Dim(follows=lambda k, group: (k + group - 1) // group)
    with_zeros = Option(False, True)
    x = Input(KINDS, m, k)
    w = Input(("s4", "u4", "e2m1"), k, n, majors=("col",))
    scales, zeros = Input(ALIKE, groups, n, follows=x), Input(ALIKE, groups, n, follows=x)
    y = Output(of(RESULTS, *KINDS), m, n, follows=x)

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        return name != "zeros" or bool(options["with_zeros"])

    @staticmethod
    def reference(x: Any, w: Any, scales: Any, with_zeros: bool, zeros: Any = 0) -> Any:
        group = next(g for g in GROUPS if -(-len(w) // g) == len(scales))
        wide = w.astype(x.dtype)
        if with_zeros:
            wide = (wide - np.repeat(zeros, group, axis=0)[: len(w)]).astype(x.dtype)
        wide = wide * np.repeat(scales, group, axis=0)[: len(w)]
        return x.astype(np.float32) @ wide.astype(x.dtype).astype(np.float32)
