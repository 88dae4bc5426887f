"""What an instruction of a user's own does not state, or states wrongly, is told when a machine is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tinygpu.language import (
    GMEM,
    RMEM,
    SMEM,
    BulkTransfer,
    DeclarationError,
    Dim,
    Elementwise,
    Input,
    Layout,
    Machine,
    MatrixLoad,
    MatrixMultiply,
    Output,
    Shuffle,
    Transfer,
    blocked,
    dtype,
)
from tinygpu.ptx import isa

# --- what a family is owed ----------------------------------------------------------------------------------------


def kind(base: type, **facts: Any) -> Any:
    made = dataclass(frozen=True, eq=False)(type("Own", (base,), facts | {"__module__": __name__}))
    return made()


def same(self: Any, *_: Any) -> Any:
    return ()


COPY = {"reads": GMEM, "writes": SMEM, "label": "own"}
PRODUCT = {"label": "own", "shape": same, "fragments": same, "accumulator": same, "text": same}
ALL_IN_RMEM = (
    "a MatrixMultiply is of a warp with all in RMEM, completed at once, of a warpgroup with b in SMEM, a in SMEM or "
    "RMEM and c in RMEM, completed by wgmma group, or of a thread with b in SMEM, a in SMEM or TMEM and c in TMEM, "
    "completed by tcgen05 commit"
)


@pytest.mark.parametrize(
    ("instruction", "sentence"),
    [
        (kind(MatrixLoad, label="own"), "own (own) does not state statement(), as a MatrixLoad does"),
        (
            kind(MatrixLoad, label="own", counts=(2, 4), statement=same),
            "own (own) moves 2 or 4 matrices, and not a single one",
        ),
        (kind(Transfer, **COPY, completion="commit group"), "own (own) does not state copy(), as a Transfer does"),
        (
            kind(Transfer, **COPY, copy=same),
            "own (own) copies GMEM to SMEM, completed at once; without registers, threads copy GMEM to SMEM, in commit "
            "groups",
        ),
        (
            kind(Transfer, reads=GMEM, writes=RMEM, label="own", completion="mbarrier"),
            "own (own) is completed by a mbarrier, and what goes through registers at once",
        ),
        (
            kind(BulkTransfer, **COPY, completion="mbarrier"),
            "own (own) does not state statement(), as a BulkTransfer does",
        ),
        (
            kind(BulkTransfer, **COPY, completion="bulk group"),
            "own (own) moves GMEM to SMEM, completed by bulk group; a BulkTransfer moves GMEM to SMEM by mbarrier, or "
            "SMEM to GMEM by bulk group",
        ),
        (
            kind(MatrixMultiply, label="own"),
            "own (own) does not state shape(), fragments() and accumulator(), as a MatrixMultiply does",
        ),
        (
            kind(MatrixMultiply, **PRODUCT | {"text": MatrixMultiply.text}),
            "own (own) does not state text(), as a MatrixMultiply does",
        ),
        (
            kind(MatrixMultiply, **PRODUCT, places=(RMEM, SMEM, RMEM)),
            f"own (own) is of a warp, with a in RMEM, b in SMEM and c in RMEM; {ALL_IN_RMEM}",
        ),
        (
            kind(MatrixMultiply, **PRODUCT, places=(SMEM, SMEM, RMEM), scope="warpgroup", completion="wgmma group"),
            "own (own) does not state descriptor(), as a MatrixMultiply does",
        ),
        (kind(Transfer, label="own"), "own (own) does not say its reads and writes"),
        (kind(Transfer, label="own", reads=GMEM, writes=RMEM), "own (own) does not say its opcode"),
        (kind(BulkTransfer, label="own", reads=GMEM), "own (own) does not say its writes and completion"),
        (kind(Shuffle, label="own"), "own (own) does not state statement(), as a Shuffle does"),
        (kind(Elementwise, label="own"), "own (own) states neither text() nor packed_text()"),
        (
            kind(Elementwise, label="own", operands=("f32",), result="f32", packed_text=lambda _: "mov.b32 {d}, {a};"),
            "own (own) states no text(), and a register holds a single f32",
        ),
        (
            kind(Elementwise, label="own", operands=("f16x2", "f16"), result="f16x2", template="{d} {a} {b}"),
            "own (own) takes f16 and gives f16x2; an operand as wide as an element of the result is packed too",
        ),
        (
            kind(Elementwise, label="own", operands=("f16x2",), result="f32", template="{d} {a}"),
            "own (own) takes f16x2 and gives f32; a result of packed operands is packed",
        ),
        (
            kind(Elementwise, label="own", operands=("f16x2",), result="f16x2", packed_text=lambda _: "{d} {a}"),
            "own (own) gives f16x2, and its text() is of whole registers; it states text() and no packed_text()",
        ),
        (
            kind(MatrixLoad, label="own", statement=same, plain=None, transposed=None),
            "own (own) says neither how lanes hold plain nor how they hold transposed matrices",
        ),
        (
            kind(MatrixLoad, label="own", statement=same, element_bits=4),
            "own (own) exchanges elements of 4 bits; they have 8, 16 or 32",
        ),
        *(
            (kind(MatrixLoad, label="own", statement=same, plain=Layout.parse(held), transposed=None, **more), told)
            for held, more, told in (
                (
                    "((4,4),(2,2)):((2@1,1@0),(1@1,4@0))", {},
                    "own (own) gives its matrices ((4,4),(2,2)):((2@1,1@0),(1@1,4@0)) to 16 lanes, not to 32",
                ),
                (
                    "((4,8),1):((1@1,1@0),0)", {},
                    "own (own) gives each lane 1 element of 16 bits of its matrices ((4,8),1):((1@1,1@0),0), no "
                    "whole 32-bit registers",
                ),
                (
                    "((4,8),(2,2)):((2@1,1@0),(1@1,8@1))", {},
                    "own (own) has 16 elements of 16 bits in a row of its matrices "
                    "((4,8),(2,2)):((2@1,1@0),(1@1,8@1)), and not 16 bytes",
                ),
                (
                    "((4,8),(2,2)):((2@1,1@0),(1@1,1@0))", {},
                    "own (own) does not give every element of its matrices ((4,8),(2,2)):((2@1,1@0),(1@1,1@0)) to one "
                    "lane once",
                ),
                (
                    "((4,8),(4,2)):((4@0,1@1),(1@0,8@1))", {"element_bits": 8},
                    "own (own) moves 4 matrices of 16 rows, and 32 lanes point at a row each",
                ),
            )
        ),
    ],
)
def test_what_an_instruction_does_not_state_is_told_when_a_machine_is_declared(instruction: Any, sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:

        class Steps(Machine):
            """y = step(x)"""

            n = Dim()
            x, y = Input("f32", n), Output("f32", n)
            ld, st, own = isa.LdGlobal(1), isa.StGlobal(1), instruction

            def program(self, p: Any) -> None:
                who = blocked((32,), threads=32)
                stage = p.smem("f32", (32,))
                with p.grid((self.n, 32)) as (i,), p.pipeline("ring", 1, x=stage) as ring, p.role("all", warps=1):
                    x = p.load(self.ld, self.x.tile(i, shape=(32,)), who)
                    if isinstance(self.own, Elementwise):
                        x = p.apply(self.own, x)
                    if isinstance(self.own, Shuffle):
                        x = p.reduce(isa.Add("f32"), x, axis=0, by=self.own)
                    if isinstance(self.own, MatrixMultiply):
                        p.multiply(self.own, x, x, x)
                    if isinstance(self.own, MatrixLoad):
                        p.load(self.own, self.x.tile(i, shape=(32,)), who)
                    with ring.produce() as s:
                        p.copy(self.own, self.x.tile(i, shape=(32,)), s.x, who)

            @staticmethod
            def reference(x: Any) -> Any:
                return x

    assert str(refused.value) == f"Steps.program: {sentence}"


# --- what an instruction says has to be PTX, and its fragments whole ----------------------------------------------


@dataclass(frozen=True, eq=False)
class Product(MatrixMultiply):
    """A product of 16 x 8 x 16 with fragments of one's own."""

    a: Any = "((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,8@1))"
    label = "product"

    def shape(self, a: Any, b: Any) -> tuple[int, int, int]:
        return 16, 8, 16

    def fragments(self, a: Any, b: Any) -> Any:
        rest = "((4,8),(2,2)):((2@0,1@1),(1@0,8@0))", "((4,8),(2,2)):((2@1,1@0),(1@1,8@0))"
        return tuple(text and Layout.parse(text) for text in (self.a, *rest))

    def accumulator(self, a: Any, b: Any) -> Any:
        return dtype("f32")

    def text(self, a: Any, b: Any) -> str:
        return "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def multiplied(instruction: Any, who: Any = None) -> type[Machine]:
    class Products(Machine):
        """c = a @ b"""

        m, n, k = Dim(), Dim(), Dim()
        a, b, c = Input("f16", m, k), Input("f16", k, n), Output("f32", m, n)
        ld, st, product = isa.LdGlobal(1), isa.StGlobal(1), instruction

        def program(self, p: Any) -> None:
            t = p.tiled(self.product, "f16", "f16", (16, 8), (1, 1))
            with p.grid((self.m, 16), (self.n, 8)) as (i, j), p.role("all", warps=1):
                c = p.full(t.c, "f32")
                with p.loop(self.k, step=16) as kk:
                    a = p.load(self.ld, self.a.tile(i, kk, shape=(16, 16)), who or t.a)
                    p.multiply(self.product, c, a, p.load(self.ld, self.b.tile(kk, j, shape=(16, 8)), t.b))
                p.store(self.st, self.c.tile(i, j, shape=(16, 8)), c)

        @staticmethod
        def reference(a: Any, b: Any) -> Any:
            return a @ b

    return Products


HERE = "product (product) has a in registers, and"


@pytest.mark.parametrize(
    ("fragment", "sentence"),
    [
        ("((4,4),(2,2,4)):((2@1,1@0),(1@1,8@1,4@0))",
         "its fragment ((4,4),(2,2,4)):((2@1,1@0),(1@1,8@1,4@0)) is held by 16 lanes, not by 32"),
        ("((4,8),1):((1@1,1@0),0)",
         "a lane holds 1 value of f16 of its fragment ((4,8),1):((1@1,1@0),0), no whole 32-bit registers"),
        ("((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,0))",
         "its fragment ((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,0)) does not hold every element once"),
    ],
)  # fmt: skip
def test_fragments_that_registers_cannot_hold_are_refused(fragment: str, sentence: str) -> None:
    multiplied(Product())
    with pytest.raises(DeclarationError) as error:
        multiplied(Product(a=fragment))
    assert str(error.value) == f"Products.program: {HERE} {sentence}"


def test_an_operand_that_is_held_otherwise_is_refused() -> None:
    with pytest.raises(DeclarationError) as error:
        multiplied(Product(), blocked((16, 16), threads=32, vector=2))
    said = str(error.value)
    assert said.startswith(f"Products.program: {HERE} %v")
    assert said.endswith(" is held otherwise; take its partition from p.tiled")


FILLED_IN = "{d}, {a} are filled in, and other braces are doubled"


@pytest.mark.parametrize(
    ("instruction", "sentence"),
    [
        (
            kind(
                Elementwise, label="own", operands=("f32",), result="f32", template="{ .reg .f32 t; mov.b32 {d}, {a}; }"
            ),
            f"own (own) cannot be written: in '{{ .reg .f32 t; mov.b32 {{d}}, {{a}}; }}' {FILLED_IN}",
        ),
        (
            kind(Elementwise, label="own", operands=("f32",), result="f32", template="add.f32 {d}, {a}, {b};"),
            f"own (own) cannot be written: in 'add.f32 {{d}}, {{a}}, {{b}};' {FILLED_IN}",
        ),
        (
            kind(Elementwise, label="own", operands=("f32",) * 10, result="f32", template="mov.b32 {d}, {a};"),
            "own (own) takes 10 operands, and a text names 9 at most",
        ),
        (
            kind(Shuffle, label="own", statement=lambda self, d, a, mask: None),
            "own (own) cannot be written: statement() gives None, and PTX is text",
        ),
        (
            kind(MatrixLoad, label="own", statement=lambda self, registers, address, across: registers[3]),
            "own (own) cannot be written: statement() raises IndexError: list index out of range",
        ),
    ],
)
def test_what_gives_no_text_is_told_when_a_machine_is_declared(instruction: Any, sentence: str) -> None:
    assert f"own (own) {instruction.unwritten()}" == sentence
