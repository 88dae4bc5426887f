"""Element-wise functions of operands that lie anywhere between two ends: what they give lies between theirs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.elementwise import apply
from tinygpu.ptx.bounds.enclosure import Enclosure

# The first two jump, and are refused of what is rounded; the others give neighbours among floats.
OTHERS = {"remainder", "fmod", "nextafter", "spacing"}


def of_floats(ufunc: np.ufunc) -> bool:
    return ufunc.signature is None and f"{'d' * ufunc.nin}->d" in ufunc.types and ufunc.__name__ not in OTHERS


UFUNCS = {u.__name__: u for u in vars(np).values() if isinstance(u, np.ufunc) and of_floats(u)}


@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_what_lies_between_the_ends_is_enclosed(name: str) -> None:
    """Narrow ends and wide ones, on both sides of zero, of turning points and of poles."""
    ufunc, rng = UFUNCS[name], np.random.default_rng(len(name))
    n = 400
    operands = []
    for _ in range(ufunc.nin):
        middle = rng.normal(size=n) * 10.0 ** rng.integers(-2, 4, n)
        half = 10.0 ** rng.uniform(-6, 1.5, n)
        operands.append(Enclosure(middle, middle - half, middle + half))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = apply(ufunc, operands, Rounding(exact=True))
        anything = (found.low == -np.inf) & (found.high == np.inf)
        for share in np.linspace(0, 1, 41):
            # one operand goes from end to end, and the others with it, against it, or to places of their own
            ways = [np.full(n, share), np.full(n, 1 - share), rng.uniform(size=n)]
            for way in ways:
                places = zip(operands, (ways[0], way), strict=False)
                inner = [np.clip(o.low + (o.high - o.low) * w, o.low, o.high) for o, w in places]
                got = ufunc(*inner)
                wrong = ~(anything | np.isnan(got) | ((found.low <= got) & (got <= found.high)))
                assert not wrong.any(), [(x[wrong][0], got[wrong][0], found.low[wrong][0]) for x in inner]
