"""A smallest cut through what is computed of what: which values to keep, so that others can be computed of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

_Node = tuple[str, bool]  # a value, before and behind the decision to keep it
_SOURCE, _SINK = ("", False), ("", True)


def smallest_cut(
    operands: Mapping[str, tuple[str, ...]], needed: Collection[str], size: Mapping[str, int]
) -> set[str]:
    """The values to compute anew, the fewest that leave the kept ones as small as they can be together.

    operands  of every value that can be computed anew; of those that cannot, none
    needed    values that are needed in the end, kept or computed anew
    size      of each value; 0 or not there: keeping it costs nothing
    """
    left: dict[_Node, dict[_Node, int]] = {_SOURCE: {}, _SINK: {}}
    endless = 1 + sum(size.values())

    def join(a: _Node, b: _Node, capacity: int) -> None:
        left.setdefault(a, {})[b] = capacity
        left.setdefault(b, {}).setdefault(a, 0)

    ahead, seen = deque(needed), set(needed)
    for name in needed:
        join((name, True), _SINK, endless)
    while ahead:
        name = ahead.popleft()
        join((name, False), (name, True), size.get(name, 0))
        if not operands.get(name):
            join(_SOURCE, (name, False), endless)
        for operand in dict.fromkeys(operands.get(name, ())):
            join((operand, True), (name, False), endless)
            if operand not in seen:
                seen.add(operand)
                ahead.append(operand)
    while (path := _path(left)) is not None:
        amount = min(left[a][b] for a, b in path)
        for a, b in path:
            left[a][b] -= amount
            left[b][a] += amount
    behind = _reaching(left)
    return {name for name in seen if (name, False) in behind}


def _path(left: Mapping[_Node, Mapping[_Node, int]]) -> list[tuple[_Node, _Node]] | None:
    """The shortest way from source to sink on which something still goes through."""
    before: dict[_Node, _Node] = {_SOURCE: _SOURCE}
    ahead = deque([_SOURCE])
    while ahead:
        node = ahead.popleft()
        for other, capacity in left[node].items():
            if capacity and other not in before:
                before[other] = node
                ahead.append(other)
    if _SINK not in before:
        return None
    path, node = [], _SINK
    while node != _SOURCE:
        path.append((before[node], node))
        node = before[node]
    return path


def _reaching(left: Mapping[_Node, Mapping[_Node, int]]) -> set[_Node]:
    """The nodes from which something still goes to the sink."""
    found, ahead = {_SINK}, deque([_SINK])
    while ahead:
        node = ahead.popleft()
        for other in left[node]:
            if other not in found and left[other][node]:
                found.add(other)
                ahead.append(other)
    return found
