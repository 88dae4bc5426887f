"""Operators and functions of tiles, carried out by the instructions that the machine declares for them.

Which instruction a sign stands for follows from its `sign` and its types; nobody asks for a class. Where the machine
says in which type it computes, narrower operands are converted first, and results where they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr
from tinygpu.language.instruction import Elementwise, Group
from tinygpu.language.operators import COMPARISONS, Link, OfNumbers, as_written
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.computing import Computing
from tinygpu.language.verb import verb
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk

# What may be declared for a sign, by the number of its operands.
_EXAMPLES = {
    ("+", 2): "Add", ("-", 2): "Sub", ("-", 1): "Neg", ("*", 2): "Mul", ("/", 2): "Div", ("abs", 1): "Abs",
    ("fma", 3): "Fma", ("maximum", 2): "Max", ("minimum", 2): "Min", ("exp2", 1): "Ex2", ("log2", 1): "Lg2",
    ("sqrt", 1): "Sqrt", ("rsqrt", 1): "Rsqrt", ("reciprocal", 1): "Rcp", ("tanh", 1): "Tanh", ("sin", 1): "Sin",
    ("cos", 1): "Cos", ("floor", 1): "Floor", ("ceil", 1): "Ceil", ("trunc", 1): "Trunc", ("rint", 1): "Round",
    ("&", 2): "And", ("|", 2): "Or", ("^", 2): "Xor", ("~", 1): "Not", ("<<", 2): "Shl", (">>", 2): "Shr",
    ("where", 3): "Select", ("move", 1): "Mov",
}  # fmt: skip
_BITS = ("&", "|", "^", "~", "<<", ">>")  # of elements as they are
_DIVIDED = ("/", "//", "%")  # what no instruction that ships does with integers


@dataclass(slots=True, eq=False)
class _Product:
    """A product that may become part of a sum that is rounded once.

    made   its tile
    body   the statements among which it stands
    total  the sum that it became part of
    """

    made: Tile
    body: list[n.Statement]
    statement: n.Apply
    total: n.Statement | None = None


@dataclass(slots=True, eq=False)
class Operating(Computing):
    """What operators between tiles do."""

    converted: dict[tuple[Tile, str], tuple[list[n.Statement], Tile]] = field(default_factory=dict)
    products: dict[str, _Product] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.link = Link(self)

    # -- signs -----------------------------------------------------------------------------------------------------
    def operate(self, sign: str, *operands: Any, into: Tile | None = None) -> Tile:
        """The result of an operator, by the declared instruction that its sign stands for."""
        operands = self._beside_a_tile(operands, into)
        self._check(sign, operands)
        if into is not None and self._compute is not None and _narrower(into, self._compute):
            return self.apply(self._conversion(self._compute, into.dtype), self.operate(sign, *operands), into=into)
        given = operands if sign in _BITS else self._computed(operands)
        found = self._meant(sign, given)
        if found is None:
            raise self._undeclared(sign, operands, given)
        result = self._contracted(given, into) if sign == "+" and self.machine.contract else None
        if result is None:
            result = self.apply(found, *given, into=into)
        if into is None and sign == "*" and isinstance(statement := self.bodies[-1][-1], n.Apply):
            self.products[result.name] = _Product(result, self.bodies[-1], statement)
        return result

    def offers(self, sign: str, *operands: Any) -> bool:
        """Whether the machine declares an instruction for a sign between these operands."""
        operands = tuple(1.0 if isinstance(o, OfNumbers) else o for o in operands)
        self._check(sign, operands)
        given = operands if sign in _BITS else tuple(self._type_computed(o) for o in operands)
        return bool(self._declared(sign, tuple(_type_of(o) for o in given))[0])

    @verb("p.cast")
    def cast(self, tile: Tile, to: DType | str, into: Tile | None = None) -> Tile:
        """The tile in another type, by the declared conversion; the tile itself where it has that type.

        into  an existing tile that gets the values, by a move where it has the same type: what a loop carries on
        """
        kind = dtype(to)
        if tile.dtype == kind and into is None:
            return tile
        if tile.partition is None:
            raise self.fail(f"p.cast converts registers, and {tile.name} lies in {tile.memory}; load it first")
        if into is not None:
            return self.apply(self._conversion(tile.dtype, kind, tile), tile, into=into)
        known = self.converted.get((tile, kind.name))  # of this very tile: its transpose, or a part of it, is another
        if known is not None and known[0] is self.bodies[-1] and not _written_since(known[0], known[1], {tile.name}):
            return known[1]
        result = self.apply(self._conversion(tile.dtype, kind, tile), tile)
        self.converted[tile, kind.name] = self.bodies[-1], result
        return result

    def _conversion(self, origin: DType, to: DType, tile: Tile | None = None) -> Elementwise:
        """The declared conversion between two types; between two tiles of one type a move."""
        if origin == to:
            moves, _ = self._declared("move", (origin.name,), to.name)
            if not moves:
                raise self.fail(
                    f"{tile} is {origin} already, and the machine declares no move of it into another tile; declare "
                    f'one, as isa.Mov("{origin}"), or all usual ones, as isa.arithmetic("{origin}")'
                )
            return moves[0]
        found, _ = self._declared("convert", (origin.name,), to.name)
        if not found:
            what = "a result" if tile is None else str(tile)
            raise self.fail(
                f"{what} is {origin}, and the machine declares no conversion to {to}; "
                f'declare one, as isa.Cvt("{origin}", "{to}"), or all usual ones, as '
                f'isa.arithmetic("{to}")'
            )
        return found[0]

    def _stored(self, value: Tile, kind: DType) -> Tile:
        """What is stored where elements of a type lie: of a machine that computes in a wider one, the value rounded."""
        wider = self._compute is not None and value.dtype == self._compute and _narrows(kind, value.dtype)
        return self.cast(value, kind) if wider else value

    # -- what is declared ------------------------------------------------------------------------------------------
    @property
    def _compute(self) -> DType | None:
        return dtype(self.machine.compute) if self.machine.compute else None

    def _declared(self, sign: str, takes: tuple[str | None, ...], gives: str = "") -> tuple[list[Elementwise], bool]:
        """(those with a sign whose operands have these types, None: any; whether they are of groups).

        What the machine declares by itself comes before what groups have; what several groups have is one.
        """
        own: list[Elementwise] = []
        grouped: list[Elementwise] = []
        for value in self.machine.own_instructions():
            for i in value if isinstance(value, Group) else (value,):
                if isinstance(i, Elementwise) and i.sign == sign and _fits(i, takes, gives):
                    (grouped if isinstance(value, Group) else own).append(i)
        alike = {(type(i), *(getattr(i, f.name) for f in fields(i))): i for i in reversed(grouped)}
        return (own, False) if own else ([*reversed(alike.values())], True)

    def _meant(self, sign: str, operands: tuple[Any, ...]) -> Elementwise | None:
        """The instruction that a sign stands for between these operands; None where the machine has none."""
        found, of_groups = self._declared(sign, tuple(_type_of(o) for o in operands))
        found = _of_floats(found, operands)
        if len(found) > 1:
            names = " and ".join(str(i) if of_groups else self.machine.attribute_of(i) for i in found)
            raise self.fail(
                f"{as_written(sign, operands)} may be {names}, which both mean it; say which is meant, with p.apply"
            )
        return found[0] if found else None

    def _undeclared(self, sign: str, operands: tuple[Any, ...], given: tuple[Any, ...]) -> DeclarationError:
        kinds = list(dict.fromkeys(str(o.dtype) for o in given if isinstance(o, (Tile, n.ScalarArgument))))
        said = as_written(sign, operands)
        if len(kinds) > 1 and sign != "where":
            return self.fail(
                f"{said} is of {' and '.join(kinds)}; convert one of them, with p.cast, or say in the class in which "
                'type the machine computes, as compute = "f32"'
            )
        kind = kinds[-1] if sign == "where" else kinds[0]
        if sign in _DIVIDED and (sign != "/" or kind in ("s32", "u32")):
            return self.fail(
                f"{said} is of {kind}, and no instruction that ships has the sign {sign!r} for that; >> and & divide "
                "by powers of two, p.cast and floor go by way of f32, and an Elementwise of your own may have the sign"
            )
        if sign in COMPARISONS:
            one = f'isa.Compare("{kind}", "{sign}")'
        else:
            name = _EXAMPLES.get((sign, len(operands)))
            one = f'isa.{name}("{kind}")' if name else f"an Elementwise whose sign is {sign!r}"
        return self.fail(
            f"{said} is of {kind}, and the machine declares no instruction whose sign is {sign!r} for that; declare "
            f'one, as {one}, or all usual ones, as isa.arithmetic("{kind}")'
        )

    # -- operands --------------------------------------------------------------------------------------------------
    def _check(self, sign: str, operands: tuple[Any, ...]) -> None:
        for o in operands:
            if isinstance(o, Tile) and o.partition is None:
                raise self.fail(
                    f"{as_written(sign, operands)}: {o.name} lies in {o.memory}, and operators are of values in "
                    "registers; load it first"
                )
            if isinstance(o, bool) or not isinstance(o, (Tile, n.ScalarArgument, Expr, int, float)):
                said = as_written(sign, operands)
                objects = isinstance(o, bool) and sign == "where"
                why = "; == compares tiles as objects, equal(x, y) their elements" * objects
                raise self.fail(f"{said}: operands are tiles, scalars, dims and numbers, not {o!r}{why}")

    def _computed(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands in the type in which the machine computes, those that are narrower."""
        compute = self._compute
        if compute is None:
            return operands
        return tuple(self.cast(o, compute) if _narrower(o, compute) else o for o in operands)

    def _type_computed(self, operand: Any) -> Any:
        """An operand as it would be after its conversion: itself, or a type."""
        compute = self._compute
        return compute if compute is not None and _narrower(operand, compute) else operand

    # -- products in sums ------------------------------------------------------------------------------------------
    def _contracted(self, operands: tuple[Any, ...], into: Tile | None) -> Tile | None:
        """x * y + z as one instruction that rounds once, where a product was made for that and nothing else yet."""
        for place in (0, 1):
            product, other = operands[place], operands[1 - place]
            known = self.products.get(product.name) if isinstance(product, Tile) else None
            if known is None or known.made is not product or product.name not in self.unused:
                continue
            if known.body is not self.bodies[-1]:
                continue
            factors = known.statement.operands
            names = {t.name for t in factors if isinstance(t, Tile)}
            if _written_since(known.body, product, names):
                continue
            found = self._meant("fma", (*factors, other))
            if found is None:
                continue
            known.body[:] = [s for s in known.body if s is not known.statement]
            self.unused.pop(product.name)
            result = self.apply(found, *factors, other, into=into)
            known.total = self.bodies[-1][-1]
            return result
        return None

    def _forget(self, names: Iterable[str]) -> None:
        gone = tuple(names)
        Computing._forget(self, gone)
        for name in gone:
            self.products.pop(name, None)

    def _use(self, tile: Tile) -> None:
        """A product that is used beside the sum that it became part of is made after all, before that sum."""
        Computing._use(self, tile)
        known = self.products.get(tile.name)
        if known is None or known.total is None:
            return
        at = next((i for i, s in enumerate(known.body) if s is known.total), None)
        if at is None or not any(body is known.body for body in self.bodies):
            raise self.fail(f"%{tile.name} became part of a sum that is rounded once; write the product again")
        known.body.insert(at, known.statement)
        known.total = None


def _written_since(body: list[n.Statement], made: Tile, names: set[str]) -> bool:
    """Whether tiles were written behind the statement that made another, in blocks too; or it is not there."""
    at = next((i for i, s in enumerate(body) if any(t.name == made.name for t in s.writes)), None)
    return at is None or any(t.name in names for s in walk(tuple(body[at + 1 :])) for t in s.writes)


def _fits(instruction: Elementwise, takes: tuple[str | None, ...], gives: str) -> bool:
    """Whether an instruction takes operands of these types, None: any."""
    wants, result = instruction.elements()
    alike = len(wants) == len(takes) and all(t in (None, w) for t, w in zip(takes, wants, strict=True))
    return alike and gives in ("", result)


def _of_floats(found: list[Elementwise], operands: tuple[Any, ...]) -> list[Elementwise]:
    """Those of several that take floats where numbers are written as such: `where(seen, 1.0, 0.0)` is not of s32."""
    written = [i for i, o in enumerate(operands) if isinstance(o, float)]
    meant = [f for f in found if all(dtype(f.elements()[0][i]).is_float for i in written)]
    return meant or found


def _type_of(operand: Any) -> str | None:
    """The type of a tile or a scalar; None of what takes any."""
    if isinstance(operand, DType):
        return operand.name
    return operand.dtype.name if isinstance(operand, (Tile, n.ScalarArgument)) else None


def _narrower(operand: Any, compute: DType) -> bool:
    """Whether a tile is converted before anything is computed with it: its elements have 16 or 8 bits."""
    return isinstance(operand, Tile) and _narrows(operand.dtype, compute)


def _narrows(kind: DType, compute: DType) -> bool:
    if kind == compute or kind.kind in ("predicate", "scale"):
        return False
    return kind.bits <= min(compute.bits, 16) or kind.name == "tf32"
