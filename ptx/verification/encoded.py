"""Numbers of a verification's inputs as elements of their types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.dtypes import DType, tf32_read
from tinygpu.ptx.runtime.elements import element


def encoded(found: NDArray[np.float64], declared: Distribution | None, dtype: DType) -> NDArray[Any]:
    """The nearest elements of a type, of tf32 as tensor cores read it; of declared numbers none beyond an end."""
    kind = element(dtype.name)
    bits = kind.encode(found) if declared is None else kind.encode_drawn(found, declared)
    held = np.asarray(bits).view(dtype.numpy)
    if dtype.name != "tf32":
        return held
    cut = tf32_read(held)  # nearer to zero, at times beyond an end: then the next one away from zero is meant
    if declared is None:
        return cut
    beyond = ((cut < declared.low) | (cut > declared.high)) & (not declared.listed)
    return np.where(beyond, cut.view(np.uint32) + np.uint32(0x2000), cut.view(np.uint32)).view(np.float32)
