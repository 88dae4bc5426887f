"""Groups of warps that take turns between tensor cores and lanes: a product, what is made of it, the next product.

A group, one warp on each scheduler, does one thing after another: while it makes exponentials of one product's sums,
the tensor cores are free for the others. With one group both times add up; with very many the longer one hides the
shorter. In between it is a closed queue of two servers, whose customers are the groups: with service times that vary
(groups drift against each other) its throughput is known in closed form (Gordon and Newell, 1967; Buzen, 1973).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = NDArray[np.float64]

# Times that are nearer to each other than this are taken to be equal: the quotient below has no digits left.
_EQUAL = 1e-6


def in_turns(tensor_s: Times, lanes_s: Times, groups: Times) -> Times:
    """Seconds in which `groups` of warps get so much done on the tensor cores, and so much on lanes.

    tensor_s  of all groups together, without the others
    lanes_s   likewise; 0 of either costs nothing, and without tensor work lanes have no turns: the result is 0 then
    groups    at least 1, also a fraction

    With G(N) = x^N + x^(N-1) y + ... + y^N, the constant of a closed network of two servers, a round of all N customers
    takes N G(N) / G(N-1): of times that are sums over all customers, G(N) / G(N-1).

    >>> one, three = np.array(1.0), np.array(3.0)
    >>> [round(float(in_turns(three, one, np.array(n))), 3) for n in (1.0, 2.0, 1000.0)]
    [4.0, 3.25, 3.0]
    """
    if not np.any(tensor_s):
        return np.zeros(np.broadcast_shapes(np.shape(tensor_s), np.shape(lanes_s), np.shape(groups)))
    most = np.maximum(tensor_s, lanes_s)
    ratio = np.minimum(tensor_s, lanes_s) / np.where(most > 0, most, 1.0)
    equal = ratio > 1 - _EQUAL
    inside = np.where(equal, 0.5, ratio)
    grown = np.where(equal, (groups + 1) / groups, (1 - inside ** (groups + 1)) / (1 - inside**groups))
    return np.asarray(np.where(np.asarray(tensor_s) > 0, most * grown, 0.0), dtype=np.float64)


__all__ = ["in_turns"]
