"""Random expressions of the language as trees, with a meaning of their own that owes nothing to sympy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tinygpu.expressions import Expr, all_of, any_of, expr, maximum, minimum, symbol, where

Tree = tuple[Any, ...]

_RELATIONS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def integers(names: tuple[str, ...]) -> st.SearchStrategy[Tree]:
    leaves = st.one_of(
        st.sampled_from(names).map(lambda n: ("symbol", n)),
        st.integers(0, 12).map(lambda v: ("number", v)),
    )
    divisors = st.one_of(
        st.tuples(st.just("+"), st.sampled_from(names).map(lambda n: ("symbol", n)), st.just(("number", 1))),
        st.integers(1, 7).map(lambda v: ("number", v)),
    )

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        relation = st.tuples(st.sampled_from(sorted(_RELATIONS)), inner, inner)
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "max", "min"]), inner, inner),
            st.tuples(st.sampled_from(["//", "%"]), inner, divisors),
            st.tuples(st.just("where"), relation, inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=6)


def conditions(names: tuple[str, ...]) -> st.SearchStrategy[Tree]:
    relation = st.tuples(st.sampled_from(sorted(_RELATIONS)), integers(names), integers(names))

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
            st.tuples(st.just("not"), inner),
        )

    return st.recursive(relation, grow, max_leaves=4)


def build(tree: Tree) -> Expr:
    """The tree as an `Expr`."""
    kind, *parts = tree
    if kind == "symbol":
        return symbol(parts[0])
    if kind == "number":
        return expr(parts[0])
    args = [build(p) for p in parts]
    if kind in _RELATIONS:
        return _RELATIONS[kind](*args)
    return {
        "+": lambda: args[0] + args[1],
        "-": lambda: args[0] - args[1],
        "*": lambda: args[0] * args[1],
        "//": lambda: args[0] // args[1],
        "%": lambda: args[0] % args[1],
        "max": lambda: maximum(*args),
        "min": lambda: minimum(*args),
        "where": lambda: where(*args),
        "and": lambda: all_of(args),
        "or": lambda: any_of(args),
        "not": lambda: ~args[0],
    }[kind]()


def meaning(tree: Tree, values: Mapping[str, int]) -> Any:
    """The value of the tree in plain Python."""
    kind, *parts = tree
    if kind == "symbol":
        return values[parts[0]]
    if kind == "number":
        return parts[0]
    args = [meaning(p, values) for p in parts]
    if kind in _RELATIONS:
        return _RELATIONS[kind](*args)
    return {
        "+": lambda: args[0] + args[1],
        "-": lambda: args[0] - args[1],
        "*": lambda: args[0] * args[1],
        "//": lambda: args[0] // args[1],
        "%": lambda: args[0] % args[1],
        "max": lambda: max(args),
        "min": lambda: min(args),
        "where": lambda: args[1] if args[0] else args[2],
        "and": lambda: args[0] and args[1],
        "or": lambda: args[0] or args[1],
        "not": lambda: not args[0],
    }[kind]()
