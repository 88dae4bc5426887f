"""An instruction that the library does not have."""

from typing import Any

import numpy as np

from tinygpu.language import Elementwise


class Farther(Elementwise):
    """d = the larger of |a| and |b|."""

    operands = ("f32", "f32")
    result = "f32"
    unit = "alu"
    source = "PTX ISA, max"
    template = "{{ .reg .f32 t, u; abs.f32 t, {a}; abs.f32 u, {b}; max.NaN.f32 {d}, t, u; }}"

    def meaning(self, *values: Any) -> Any:
        a, b = values
        return np.maximum(np.abs(a), np.abs(b))
