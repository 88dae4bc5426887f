"""Instructions of a user's own, written against the families: searched, lowered, right; or refused in a sentence."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import (
    GMEM,
    RMEM,
    SMEM,
    BulkTransfer,
    DeclarationError,
    Dim,
    Elementwise,
    InOut,
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
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.meanings import meaning_fault

THIRD_PARTY = Path(__file__).parents[2] / "thirdparty"
sys.path.append(str(THIRD_PARTY))

# file, machine, device, problem, what its kernels say
KERNELS = (
    ("double_matmul", "MatmulDouble", "a100", {"m": 40, "n": 36, "k": 24}, "mma.sync.aligned.m8n8k4.row.col.f64.f64"),
    ("pair_loads", "MatmulPairs", "a100", {"m": 40, "n": 48, "k": 40}, "ldmatrix.sync.aligned.m8n8.x2.shared.b16"),
    ("half_chain", "ScaleShift", "a100", {"m": 5, "n": 130}, "fma.rn.f16x2 %r"),
    ("atomic_sum", "ColumnSum", "a100", {"m": 30, "n": 130}, "red.global.add.f32 [%d"),
    ("bulk_rows", "ScaleRows", "h100", {"m": 8, "n": 256}, "cp.async.bulk.global.shared::cta.bulk_group [%d"),
    ("byte_matmul", "MatmulBytes", "b200", {"m": 40, "n": 48, "k": 64}, "ldmatrix.sync.aligned.m16n16.x2.trans.shared"),
    ("row_max", "RowMax", "h100", {"b": 2, "m": 5, "n": 21}, "shfl.sync.bfly.b32 %r"),
    ("turned", "Turned", "a100", {"m": 37, "n": 24}, ".trans.shared.b16 {%r"),
    ("contraction", "Contraction", "h100", {"b": 2, "m": 17, "n": 20, "k": 9}, "cp.async"),
    ("mix", "Mix", "a100", {"m": 5, "k": 7, "n": 130}, "ld.const.b32 %r"),
)


@cache
def machine(file: str, name: str) -> type[Machine]:
    found: type[Machine] = getattr(__import__(file), name)
    return found


@pytest.mark.parametrize(("file", "name", "target", "dims", "says"), KERNELS, ids=[k[0] for k in KERNELS])
def test_machines_on_own_instructions_are_searched_lowered_and_right(
    file: str, name: str, target: str, dims: dict[str, int], says: str
) -> None:
    space = build_space(machine(file, name), machine(file, name).problem(**dims), device(target))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(4)))
    kernel = build(space.program(point), space.problem, point, SolverCache()).kernel
    assert says in kernel.ptx
    assert verify(kernel, machine(file, name), space.problem).passed


# --- what both texts of an element-wise instruction say -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Half(Elementwise):
    """d = a + b in f16, or not."""

    one: str = "add.rn.f16 {d}, {a}, {b};"
    two: str = "add.rn.f16x2 {d}, {a}, {b};"
    operands: ClassVar[tuple[str, ...]] = ("f16", "f16")
    result: ClassVar[str] = "f16"

    def text(self) -> str:
        return self.one

    def packed_text(self) -> str:
        return self.two

    def meaning(self, *values: Any) -> Any:
        return values[0] + values[1]


@dataclass(frozen=True, eq=False)
class Pairs(Elementwise):
    """d = a + b of the two values in a register, or not; types are packed, as PTX has them."""

    kind: str = "f16"
    op: str = "add"

    def types(self) -> tuple[tuple[str, ...], str]:
        return (f"{self.kind}x2",) * 2, f"{self.kind}x2"

    def text(self) -> str:
        return f"{self.op}.rn.{self.kind}x2 {{d}}, {{a}}, {{b}};"

    @property
    def target(self) -> int:  # type: ignore[override]
        return 90 if self.kind == "bf16" else 80

    def meaning(self, *values: Any) -> Any:
        return values[0] + values[1]


def test_a_packed_text_that_says_something_else_than_the_meaning_is_found() -> None:
    def said(instruction: Elementwise) -> str:
        return meaning_fault(instruction, np.random.default_rng(1), 0.0)

    assert said(Half()) == ""
    assert said(Half(one="")) == ""
    assert said(isa.Cvt("f32", "bf16")) == ""
    assert said(Pairs()) == ""
    assert said(Pairs("bf16")) == ""
    assert "and its packed text, emulated, " in said(Pairs(op="sub"))
    wrong = said(Half(two="sub.rn.f16x2 {d}, {a}, {b};"))
    assert wrong.startswith("of a = ")
    assert "and its packed text, emulated, " in wrong
    crossed = "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {b}; mov.b32 {d}, {{h, l}}; add.rn.f16x2 {d}, {a}, {d}; }}"
    assert "and its packed text, emulated, " in said(Half(two=crossed))


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


# --- stores that combine ------------------------------------------------------------------------------------------


def added(kind: str = "f32", declared: Any = InOut, more: Any = None, **facts: Any) -> type[Machine]:
    """y += x, by a store that adds."""
    name = kind

    class Added(Machine):
        """y += x"""

        n = Dim()
        x, y = Input(name, n), declared(name, n)
        ld, st = isa.LdGlobal(1), isa.StGlobal(1)
        red = kind_of_store(**facts)

        def program(self, p: Any) -> None:
            who = blocked((64,), threads=32)
            with p.grid((self.n, 64)) as (i,), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, shape=(64,)), who)
                p.store(self.red, self.y.tile(i, shape=(64,)), x)
                if more is not None:
                    more(self, p, i, who, x)

        @staticmethod
        def reference(x: Any, y: Any = 0) -> Any:
            return x + y

    return Added


def kind_of_store(**facts: Any) -> Any:
    from atomic_sum import AddGlobal

    return kind(AddGlobal, label="own", **facts)


def refused(**made: Any) -> str:
    with pytest.raises(DeclarationError) as error:
        added(**made)
    return str(error.value)


def test_what_is_combined_into_is_there_before_and_is_nobody_elses() -> None:
    added()
    assert refused(declared=Output) == (
        "Added.program: red (own) combines with what y holds, which is declared Output; declare it InOut"
    )
    assert refused(kind="f16") == "Added.program: red (own) moves f32 or s32, and y is f16"
    assert refused(writes=SMEM).startswith(
        "Added.program: red (own) writes SMEM, but the result belongs in GMEM: an instruction from RMEM to GMEM is "
        "missing"
    )
    alone = "give what else is read or written a tensor of its own"
    assert refused(more=lambda m, p, i, who, x: p.store(m.st, m.y.tile(i, shape=(64,)), x)) == (
        f"Added.program: red combines into y what CTAs store in any order, and st touches y too; {alone}"
    )


def test_a_program_that_combines_does_so_when_it_is_run() -> None:
    made = machine("atomic_sum", "ColumnSum")
    problem = made.problem(m=30, n=130)
    space = build_space(made, problem, device("a100"))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(4)))
    x = np.arange(30 * 130, dtype=np.float32).reshape(30, 130) % 7
    y = np.arange(130, dtype=np.float32)
    ran = space.program(point).run({"x": x, "y": y})
    assert np.array_equal(ran["y"], y + x.sum(axis=0))


# --- rows that are moved one by one -------------------------------------------------------------------------------


def moved(
    rows: Any = lambda self, p, i, j: self.x.tile(i, j, shape=(4, 64)), step: int = 64, **stage: Any
) -> type[Machine]:
    """y = x, by rows through a ring."""
    from bulk_rows import BulkLoad

    class Moved(Machine):
        """y = x"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m, n)
        bring, get, st = BulkLoad(), isa.LdShared(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            layout = p.smem("f32", (4, 64), **stage)
            with p.grid((self.m, 4)) as (i,), p.pipeline("ring", 2, x=layout) as ring:
                with p.role("bring", warps=1), p.loop(self.n, step=step) as j, ring.produce() as s:
                    p.copy(self.bring, rows(self, p, i, j), s.x)
                with p.role("store", warps=1, first=1), p.loop(self.n, step=step) as j, ring.consume() as s:
                    x = p.load(self.get, s.x, blocked((4, 64), threads=32))
                    p.store(self.st, self.y.tile(i, j, shape=(4, 64)), x)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Moved


EXIST = "Moved.program: bring (cp.async.bulk) moves rows that exist, and the windows of x along axis"


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"rows": lambda self, p, i, j: self.x.tile(i, j + 32, shape=(4, 64))},
         f"{EXIST} 1, which begin at 64*i1 + 32, do not follow one another over n"),
        ({"step": 32}, f"{EXIST} 1, which begin at 32*i1, do not follow one another over n"),
        ({"rows": lambda self, p, i, j: self.x.tile(j // 16, j, shape=(4, 64))},
         f"{EXIST} 0, which begin at 4*i1, do not follow one another over m"),
        ({"swizzle": 128}, "cp.async.bulk leaves rows as they are: ring.x has neither swizzle= nor layout="),
        ({"contiguous": 0}, "ring.x has rows along another axis than x: cp.async.bulk moves rows"),
    ],
)  # fmt: skip
def test_rows_that_may_not_exist_or_lie_otherwise_are_refused(made: dict[str, Any], sentence: str) -> None:
    with pytest.raises((DeclarationError, ValueError)) as error:
        moved(**made)
    assert str(error.value).endswith(sentence)


@pytest.mark.parametrize(
    ("dims", "ld", "why"),
    [
        ({"m": 6, "n": 128}, 128, "whole windows lie within x, of which cp.async.bulk moves rows; 6 mod 4 = 2 != 0"),
        ({"m": 8, "n": 96}, 128, "whole windows lie within x, of which cp.async.bulk moves rows; 96 mod 64 = 32 != 0"),
        ({"m": 8, "n": 128}, 130, "are multiples of 16 bytes"),
    ],
)
def test_problems_of_which_rows_do_not_exist_are_out(dims: dict[str, int], ld: int, why: str) -> None:
    made = moved()
    space = build_space(made, made.problem(**dims, lds={"x": ld}), device("h100")).space
    assert not space.size
    assert why in " ".join(v.sentence for v in space.explain({}))
