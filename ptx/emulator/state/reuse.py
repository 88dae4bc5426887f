"""Which accesses of a stream miss a least-recently-used cache: exact, and without running the cache step by step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def previous_access(keys: Ints) -> Ints:
    """(n,) position of the access before to the same key, -1 where there is none.

    keys  (n,) what is accessed, in order

    >>> previous_access(np.array([7, 8, 7, 7])).tolist()
    [-1, -1, 0, 2]
    """
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    previous = np.full(keys.size, -1, np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def lru_misses(keys: Ints, capacity: int) -> Bools:
    """(n,) which accesses miss a fully associative cache of `capacity` entries that evicts the least recently used.

    keys      (n,) what is accessed, in order; every access brings its key in
    capacity  number of keys that the cache holds

    >>> lru_misses(np.array([1, 2, 1, 3, 2]), 2).tolist()
    [True, True, False, True, True]
    """
    previous = previous_access(keys)
    misses = previous < 0
    if capacity <= 0:
        return np.ones(keys.size, np.bool_)
    if int(np.count_nonzero(misses)) <= capacity:
        return misses
    # So few accesses in between cannot have pushed the key out.
    doubtful = ~misses & (np.arange(keys.size) - previous > capacity)
    if doubtful.any():
        between = _no_later_than(previous) - previous - 1
        misses |= doubtful & (between >= capacity)
    return misses


def resident_at_end(keys: Ints, capacity: int) -> Ints:
    """Position of the last access of each key that such a cache still holds after the stream."""
    is_last = np.ones(keys.size, np.bool_)
    previous = previous_access(keys)
    is_last[previous[previous >= 0]] = False
    last: Ints = np.flatnonzero(is_last)
    return last[max(0, last.size - max(capacity, 0)) :]


def _no_later_than(previous: Ints) -> Ints:
    """(n,) per access i the number of accesses j < i with previous[j] <= previous[i].

    Those at or before previous[i] all count, and of those behind it the first access to each key: so this is
    previous[i] + 1 plus the distinct keys in between.

    The accesses are put in the order of `previous`; then blocks of positions are halved, from all of them down to
    single ones. In each halving the accesses of the right half count those of the left half that stand before them.
    """
    n = previous.size
    bits = max(1, int(n - 1).bit_length())
    whole = 1 << bits
    position = np.empty(whole, np.int32)
    position[:n] = np.argsort(previous, kind="stable")
    position[n:] = np.arange(n, whole)
    found = np.zeros(whole, np.int32)
    for bit in reversed(range(bits)):
        half = 1 << bit
        right = (position & half) != 0
        seen_left = np.cumsum(~right.reshape(-1, 2 * half), axis=1, dtype=np.int32).reshape(-1)
        found += np.where(right, seen_left, 0)
        left = ~right
        # Each block holds exactly `half` positions of each half, so selecting keeps the blocks apart.
        position = np.concatenate([position[left].reshape(-1, half), position[right].reshape(-1, half)], 1).reshape(-1)
        found = np.concatenate([found[left].reshape(-1, half), found[right].reshape(-1, half)], 1).reshape(-1)
    return found[:n].astype(np.int64)
