"""Seeds: what a user gives so that the same is drawn at random again."""

from __future__ import annotations

import numpy as np


def check_seed(seed: int) -> None:
    """Refuses what is no seed.

    >>> check_seed(-1)
    Traceback (most recent call last):
    ValueError: a seed is a whole number from 0 on, not -1
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"a seed is a whole number from 0 on, not {seed!r}")
