"""Whole numbers of any size in arrays: 64 bits where they suffice, Python's own integers beyond."""

from __future__ import annotations

from typing import Any

import numpy as np

_GREATEST = int(np.iinfo(np.int64).max)


def exact_type(greatest: int) -> Any:
    """The type of an array in which no number, and no sum of some of them, is beyond `greatest`.

    >>> exact_type(2**63 - 1), exact_type(2**63)
    (<class 'numpy.int64'>, <class 'object'>)
    """
    return np.int64 if greatest <= _GREATEST else object
