"""docs/blackwell.md: as its sources say; kernels run, twins are refused, pictures are the emulator's places."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app
from tinygpu.ptx.cards import complaint, refusal, refused_by_assembler, refused_by_emulator
from tinygpu.ptx.cards.blackwell import page
from tinygpu.ptx.cards.blackwell.__main__ import GENERATED
from tinygpu.ptx.cards.blackwell.descriptors import PLAIN_FIELDS, SCALED_FIELDS
from tinygpu.ptx.cards.blackwell.page import anchor
from tinygpu.ptx.cards.blackwell.products import ACCUMULATORS
from tinygpu.ptx.cards.evidence import blackwell_kernels as kernels
from tinygpu.ptx.cards.evidence import launch_control
from tinygpu.ptx.cards.evidence.whole_matmul import MATMUL, PAIR, SCALED, edited
from tinygpu.ptx.cards.evidence.whole_matmul_mistakes import OF_A_PAIR, OF_ONE, OF_SCALES, Mistake
from tinygpu.ptx.cards.judges import emulated, inputs_of
from tinygpu.ptx.cards.readings import READINGS, UNJUDGED
from tinygpu.ptx.cards.specimen import Specimen, Twin
from tinygpu.ptx.cards.whole_kernel import COMMAND, RUNNING
from tinygpu.ptx.cards.words import OPERANDS, PRODUCTS, OperandLayout, Product
from tinygpu.ptx.emulator import TensorMap
from tinygpu.ptx.emulator.units.matrix_descriptors import decode_descriptor, operand_problems
from tinygpu.ptx.emulator.units.operand_tiles import k_major_chunks, mn_major_chunks
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES
from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS, MmaForm, judge_descriptor
from tinygpu.ptx.emulator.units.tensor_memory_maps import accumulator_cells

PAGE = Path(__file__).parents[3] / "docs" / "blackwell.md"
EXAMPLES = (
    kernels.GOOD, kernels.COPY, kernels.SHIFT, kernels.GATHER, launch_control.ASK, launch_control.TAKE,
    MATMUL, PAIR, SCALED,
)  # fmt: skip
WHOLE = (MATMUL, PAIR, SCALED)
MISTAKES = (*OF_ONE, *OF_A_PAIR, *OF_SCALES)
TWINS = (
    *kernels.ALLOCATION_TWINS, *kernels.STORE_TWINS, *kernels.COPY_TWINS, *kernels.SHIFT_TWINS,
    *kernels.GATHER_TWINS, *launch_control.ASK_TWINS, *launch_control.TAKE_TWINS, *(m.twin for m in MISTAKES),
)  # fmt: skip


@pytest.mark.end_to_end
def test_the_page_is_what_its_sources_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tinygpu.ptx.cards.blackwell"
    other = tmp_path / "blackwell.md"
    assert GENERATED.main(["--check", str(other)]) == 1
    assert capsys.readouterr().err == f"{other} is missing; run python -m tinygpu.ptx.cards.blackwell {other}\n"
    assert GENERATED.main([str(other)]) == 0
    assert GENERATED.main(["--check", str(other)]) == 0


def test_the_page_tells_every_reading_once_and_says_what_is_unjudged() -> None:
    lines = page().split("\n")
    for reading in READINGS:
        (line,) = [x for x in lines if x.startswith(f"| {reading.key} | ")]
        assert (UNJUDGED in line) == (not reading.witnesses), reading.key


@pytest.mark.parametrize("name", list(ACCUMULATORS))
def test_pictures_of_accumulators_are_where_the_emulator_has_them(name: Any) -> None:
    layout = ACCUMULATORS[name][1]
    lane, column = accumulator_cells(name, 64)
    rows, columns = lane.shape
    drawn = [(layout.along("lane")(r, c), layout.along("column")(r, c)) for r in range(rows) for c in range(columns)]
    assert layout[0].size == rows
    assert layout[1].size == columns
    assert drawn == list(zip(lane.reshape(-1).tolist(), column.reshape(-1).tolist(), strict=True))


# A legal word of a form, and for each field another legal value: the code, and what the emulator calls it.
WORDS: tuple[tuple[MmaForm, int, dict[str, tuple[int, Any]]], ...] = (
    (
        MmaForm("f16"), 1 << 4 | 8 << 17 | 8 << 24,
        {
            "d_type": (0, "f16"), "negate_a": (1, True), "negate_b": (1, True), "a_mn_major": (1, True),
            "b_mn_major": (1, True), "n": (32, 256), "m": (4, 64),
        },
    ),
    (MmaForm("i8"), 2 << 4 | 8 << 17 | 8 << 24, {"saturate": (1, True), "a_type": (1, "s8"), "b_type": (1, "s8")}),
    (MmaForm("f16", ws=True), 1 << 4 | 8 << 17 | 8 << 24, {"max_shift": (2, 16)}),
    (MmaForm("f16", sparse=True), 1 << 2 | 1 << 4 | 8 << 17 | 8 << 24, {"sparsity_selector": (1, 1)}),
    (
        MmaForm("mxf8f6f4", block="block32"), 1 << 23 | 16 << 17 | 1 << 27,
        {
            "sfb_id": (3, 3), "a_type": (1, "e5m2"), "b_type": (1, "e5m2"), "negate_a": (1, True),
            "negate_b": (1, True), "a_mn_major": (1, True), "b_mn_major": (1, True), "n": (32, 256), "sfa_id": (2, 2),
        },
    ),
    (MmaForm("mxf4nvf4", block="block16"), 1 << 7 | 1 << 10 | 16 << 17 | 1 << 27, {"scale_type": (1, "ue8m0")}),
    (MmaForm("mxf8f6f4", 2, block="block32"), 1 << 23 | 16 << 17 | 1 << 27, {"m": (2, 256)}),
)  # fmt: skip


def changes() -> Iterator[Any]:
    for form, word, fields in WORDS:
        for name, (code, value) in fields.items():
            yield pytest.param(form, word, name, code, value, id=f"{form} {name}")


@pytest.mark.parametrize(("form", "word", "name", "code", "value"), list(changes()))
def test_fields_lie_at_the_bits_of_the_page(form: MmaForm, word: int, name: str, code: int, value: Any) -> None:
    table = SCALED_FIELDS if KINDS[form.kind].scaled else PLAIN_FIELDS
    ((_, low, high, unit),) = [f for f in table if f[0] == name]
    before, problems = judge_descriptor(word, form)
    assert problems == ()
    mask = (1 << high - low + 1) - 1
    after, problems = judge_descriptor(word & ~(mask << low) | code << low, form)
    assert problems == ()
    assert getattr(before, name) != value
    assert getattr(after, name) == value
    assert unit == 1 or value == code * unit


def test_every_field_of_the_page_is_tried() -> None:
    for table, scaled in ((PLAIN_FIELDS, False), (SCALED_FIELDS, True)):
        tried = {name for form, _, fields in WORDS for name in fields if KINDS[form.kind].scaled == scaled}
        # What says that A is sparse goes with the spelling .sp, and is tried with the word itself.
        assert {f[0] for f in table} - tried == {"sparse"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda s: s.title)
def test_the_smallest_kernels_assemble_and_run(example: Specimen) -> None:
    pytest.importorskip("cuda.bindings", reason="judging needs the assembler")
    assert refused_by_assembler(example) == ""
    assert refused_by_emulator(example) == ""


@pytest.mark.parametrize("twin", TWINS, ids=lambda t: t.rule)
def test_twins_are_refused_in_the_words_of_the_page(twin: Twin) -> None:
    pytest.importorskip("cuda.bindings", reason="judging needs the assembler")
    assert complaint(twin) == ""
    assert twin.refusal in refusal(twin)
    assert twin.refusal != ""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("copy", kernels.COPIES, ids=lambda s: s.title)
def test_copies_of_every_shape_and_form_assemble_and_run(copy: Specimen) -> None:
    pytest.importorskip("cuda.bindings", reason="judging needs the assembler")
    assert refused_by_assembler(copy) == ""
    assert refused_by_emulator(copy) == ""


@pytest.mark.parametrize("order", ["late", "early", "random", "spurious"])
@pytest.mark.parametrize("whole", WHOLE, ids=lambda s: s.title)
def test_whole_kernels_are_right_and_clean_in_every_order(whole: Specimen, order: str) -> None:
    for seed in (1, 2):
        inputs = inputs_of(whole, seed)
        got, report = emulated(whole, inputs, order)
        assert (got == whole.meaning(*inputs)).all()
        assert (report.faults, report.advisories, report.unfinished) == ((), (), ())


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.twin.rule)
def test_a_mistake_is_the_edit_that_the_page_tells(mistake: Mistake) -> None:
    right, wrong = ("\n".join([*map(str, s.maps), *s.statements]) for s in (mistake.twin.legal, mistake.twin.illegal))
    assert edited(right, (mistake.right, mistake.wrong)) == wrong


def test_an_edit_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the kernel does not say 'no such text', which an edit replaces$"):
        edited("a kernel", ("no such text", ""))


def test_the_page_runs_its_kernel_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings", reason="the example assembles its kernel")
    shown = page().split("### Written out", 1)[1].split("```ptx\n", 1)[1].split("```", 1)[0]
    (tmp_path / "matmul.ptx").write_text(shown, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(RUNNING, "running", "exec"), {})
    ended = CliRunner().invoke(app, shlex.split(COMMAND.replace("\\\n", ""))[1:])
    assert ended.exit_code == 0, ended.output
    assert np.load("c.npy").shape == (384, 128)


def test_links_of_the_page_lead_to_headings_of_it() -> None:
    text = page()
    headings = [anchor(line.lstrip("#").strip()) for line in text.split("\n") if re.match("#+ ", line)]
    for link in re.findall(r"\]\(#([^)]+)\)", text):
        assert headings.count(link) == 1, link


def placed(layout: OperandLayout, extent: int) -> Any:
    """Where the 16-byte chunks of a box lie: [line, chunk of the line]; a tensor map takes the box with its swizzle."""
    lines = np.zeros((extent, layout.width_bytes), np.uint8)
    assert len(bytes(TensorMap(lines, lines.shape[::-1], swizzle=layout.swizzle))) == 128
    line, byte = np.meshgrid(np.arange(extent), np.arange(0, layout.width_bytes, 16), indexing="ij")
    return SWIZZLES[layout.swizzle].apply(line * layout.width_bytes + byte)


@pytest.mark.parametrize("layout", OPERANDS, ids=lambda o: f"{o.along} {o.swizzle}")
def test_words_of_operands_read_stages_as_boxes_lie(layout: OperandLayout) -> None:
    word = decode_descriptor(layout.word, "tcgen05")
    rows, bits = 128, 32 if "ATOM" in layout.swizzle else 16
    k = 32 * 8 // bits
    assert operand_problems(word, "A", bits, layout.along != "k", rows, k) == ()
    across = layout.stride_bytes if layout.swizzle == "none" else layout.leading_bytes
    lines = rows if layout.along == "k" else across // layout.width_bytes
    in_box = placed(layout, lines)
    for step in range(2):  # one instruction, and the next along k
        if layout.along == "k":
            start = step * (32 if layout.width_bytes > 32 else 2 * rows * 16 if layout.width_bytes == 16 else rows * 32)
            chunk = step * 2 + np.arange(2)
            boxes, chunk = np.divmod(chunk, layout.width_bytes // 16)
            want = in_box[:, chunk] + boxes * rows * layout.width_bytes
            got = k_major_chunks(replace(word, start_bytes=start), rows, 32)
        else:
            start = step * k * layout.width_bytes
            boxes, chunk = np.divmod(np.arange(rows * bits // 128), layout.width_bytes // 16)
            want = in_box[step * k : (step + 1) * k, chunk] + boxes * across
            got = mn_major_chunks(replace(word, start_bytes=start), rows * bits // 8, k)
        assert (got.base + got.offsets == want).all()


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.kind} {p.said}")
def test_words_of_products_say_what_the_page_says(product: Product) -> None:
    found, problems = judge_descriptor(product.word, MmaForm(product.kind, 1 + product.pair, block=product.block))
    assert problems == ()
    assert found is not None
    for letter, value in (("m", found.m), ("n", found.n)):
        said = re.search(rf"{letter.upper()} = (\d+)", product.said)
        assert said is None or int(said[1]) == value
    if "by" in product.said:
        a, b = re.match(r"(\w+) by (\w+)", product.said).groups()  # type: ignore[union-attr]
        assert (found.a_type, found.b_type) == (a, b)
    assert f" in {found.d_type}" in product.said or found.d_type == "f32"
    assert found.b_mn_major == ("b contiguous along n" in product.said)
    assert not found.scale_type or found.scale_type in product.said
    assert (found.sfa_id, found.sfb_id) == ((1, 1) if "second scales" in product.said else (0, 0))


def test_examples_show_their_results() -> None:
    """No example gives what was in memory before."""
    for example in EXAMPLES:
        assert np.asarray(example.meaning(*inputs_of(example))).any(), example.title
