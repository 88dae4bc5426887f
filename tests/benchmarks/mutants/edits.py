"""Small wrong edits of Python: each changes one expression or statement of a module, as a slip of the hand would.

Left out is what computes nothing: docstrings, annotations, the texts of exceptions, `__repr__`, decorators, `strict` of
zip (a check of our own), the -1 of reshape (NumPy takes other negative numbers as well), and the bodies of methods that
subclasses have to write.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("comparison", "arithmetic", "boolean", "constant", "condition", "dropped statement", "swapped arguments")

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
# Functions of arguments in any order; isinstance is wrong at once in any other.
_ANY_ORDER = frozenset(
    [
        "max",
        "min",
        "maximum",
        "minimum",
        "multiply",
        "np.add",
        "emit.add",
        "emit.mul",
        "emit.xor",
        "emit.both",
        "emit.wide",
        "emit.add64",
        "emit.mul64",
        "gcd",
        "lcm",
        "isinstance",
        "array_equal",
        "broadcast_shapes",
        "allclose",
    ]
)


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one module.

    path       of the module, from the root of the checkout
    kind       one of KINDS
    line       where the edited text begins, from 1
    statement  where the statement around it begins: tests that execute it execute the edit
    start,end  the edited text, as offsets into the module's
    text       what stands there instead
    """

    path: str
    kind: str
    line: int
    statement: int
    start: int
    end: int
    text: str

    def of(self, source: str) -> str:
        """The edited module."""
        return source[: self.start] + self.text + source[self.end :]

    def before(self, source: str) -> str:
        """The edited lines, on one line."""
        return self._lines(source, self.end)

    def after(self, source: str) -> str:
        """The same lines with the edit, on one line."""
        return self._lines(self.of(source), self.start + len(self.text))

    def _lines(self, source: str, end: int) -> str:
        stop = source.find("\n", end)
        return " ".join(source[source.rfind("\n", 0, self.start) + 1 : stop if stop >= 0 else None].split())


def edits(path: str, source: str) -> list[Edit]:
    """Every edit of a module, in the order of its text."""
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    lines = source.splitlines()

    def offset(line: int, column: int) -> int:  # columns of ast count bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    tree = ast.parse(source)
    conditions = set(_conditions(tree))
    found: list[Edit] = []
    for node, statement in _nodes(tree, 1):
        start = offset(node.lineno, node.col_offset)
        end = offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        replaced = list(_replaced(node))
        if isinstance(node, ast.expr) and node in conditions:
            replaced.append(("condition", _text(_negated(node))))
        found += [Edit(path, kind, node.lineno, statement, start, end, text) for kind, text in replaced]
    return sorted(found, key=lambda e: (e.start, e.end, e.kind, e.text))


def edits_of_file(root: Path, path: str) -> list[Edit]:
    return edits(path, (root / path).read_text(encoding="utf-8"))


def _nodes(node: ast.AST, statement: int) -> Iterator[tuple[ast.expr | ast.stmt, int]]:
    """What computes something, with the line of the innermost statement."""
    if (isinstance(node, ast.FunctionDef) and node.name == "__repr__") or _left_to_subclasses(node):
        return
    if isinstance(node, (ast.JoinedStr, ast.AnnAssign)):  # parts of f-strings have no places of their own in 3.11
        value = getattr(node, "value", None)
        if isinstance(value, ast.expr):
            yield from _nodes(value, node.lineno)
        return
    if isinstance(node, ast.stmt):
        statement = node.lineno
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node, statement
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "names"):
            continue
        if isinstance(node, ast.Raise) or (name == "test" and _types_only(field)):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        if isinstance(node, ast.Call) and name == "args" and _name(node.func) == "reshape":
            field = [child for child in field if not isinstance(child, ast.UnaryOp)]
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST):
                yield from _nodes(child, statement)


def _left_to_subclasses(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id == "NotImplementedError"


def _types_only(test: object) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _replaced(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """(kind, text that stands for the node) for every edit of the node itself."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for index, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    edited = [*ops[:index], other(), *ops[index + 1 :]]
                    yield "comparison", _text(ast.Compare(left, edited, comparators))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            if not (isinstance(left, ast.Constant) and isinstance(left.value, str)):
                yield "arithmetic", _text(ast.BinOp(left, _ARITHMETIC[type(op)](), right))
        case ast.AugAssign(target=target, op=op, value=value):
            if type(op) in _ARITHMETIC:
                yield "arithmetic", ast.unparse(ast.AugAssign(target, _ARITHMETIC[type(op)](), value))
            yield "dropped statement", "pass"
        case ast.BoolOp(op=op, values=values):
            yield "boolean", _text(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "boolean", _text(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "arithmetic", _text(operand)
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=int() as value):
            yield "constant", str(value + 1)
            yield "constant", f"({value - 1})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "condition", _text(ast.IfExp(_negated(test), body, orelse))
        case ast.Expr(value=value) if not isinstance(value, (ast.Constant, ast.Yield, ast.YieldFrom)):
            yield "dropped statement", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Continue() | ast.Break() | ast.Raise():
            yield "dropped statement", "pass"
        case ast.Call(func=func, args=[first, second, *rest], keywords=keywords):
            starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            if (
                not starred
                and ast.dump(first) != ast.dump(second)
                and not {_name(func), ".".join(ast.unparse(func).split(".")[-2:])} & _ANY_ORDER
            ):
                yield "swapped arguments", _text(ast.Call(func, [second, first, *rest], keywords))
        case _:
            pass


def _conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """What statements and comprehensions ask: negated where it stands, so that the rest of them stays as it is."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _name(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"
