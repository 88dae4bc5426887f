"""The cards in the documentation are those of the code, complete; their generator says what is wrong with others."""

import re
from pathlib import Path

import pytest

from tinygpu.language.instruction import Instruction
from tinygpu.ptx import isa
from tinygpu.ptx.cards import card, cards, index, page
from tinygpu.ptx.cards.__main__ import differences, main, pages
from tinygpu.ptx.cards.specimen import Card, Field, Specimen, Variant
from tinygpu.ptx.isa.memory import LdGlobal

FOLDER = Path(__file__).parents[3] / "docs" / "instructions"


@pytest.mark.end_to_end
def test_the_committed_cards_are_what_the_code_says() -> None:
    assert differences(FOLDER) == []


def test_every_exported_instruction_has_one_card() -> None:
    # a group of some of them, and a choice between some
    exported = {getattr(isa, name) for name in isa.__all__ if name not in ("arithmetic", "Exchange")}
    assert all(issubclass(e, Instruction) for e in exported)
    shown = [type(c.instruction) for c in cards()]
    assert len(shown) == len(set(shown))
    assert set(shown) == exported


@pytest.mark.parametrize("shown", cards(), ids=lambda c: c.name)
def test_a_card_shows_every_rule_with_its_judge_and_every_twin(shown: Card) -> None:
    text = page(shown)
    for rule in shown.rules:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {rule.name} | {rule.sentence} |")]
        assert f"| {rule.judge} |" in row
        assert rule.why
    for guarantee in shown.guarantees:
        assert f"| {guarantee.name} | {guarantee.sentence} | {guarantee.judge} |" in text
    assert len(re.findall(r"^### ", text, re.MULTILINE)) == len(shown.twins)
    assert shown.example.ptx in text
    assert shown.meaning in text


def test_the_index_lists_every_card_once() -> None:
    listed = re.findall(r"^\| \[.*?\]\((.*?)\)", index(cards()), re.MULTILINE)
    assert sorted(listed) == sorted(f"{shown.name}.md" for shown in cards())


def test_a_card_that_does_not_exist_is_refused_with_the_list() -> None:
    said = r"^there is no card 'wmma\.mma'; there are ld\.global, .*, trunc, unpack, pack$"
    with pytest.raises(ValueError, match=said):
        card("wmma.mma")


@pytest.mark.end_to_end
def test_check_names_every_page_that_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pages()  # once for all calls below
    monkeypatch.setattr("tinygpu.ptx.cards.__main__.pages", lambda: made)
    folder = tmp_path / "pages"
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{len(made)} pages in {folder}\n"
    assert main(["--check", str(folder)]) == 0
    (folder / "fma.md").write_text("# fma\n", encoding="utf-8")
    (folder / "add.md").unlink()
    (folder / "wmma.md").write_text("# wmma\n", encoding="utf-8")
    assert main(["--check", str(folder)]) == 1
    advice = f"; run python -m tinygpu.ptx.cards {folder}\n"
    assert capsys.readouterr().err == (
        f"{folder / 'add.md'} is missing{advice}"
        f"{folder / 'fma.md'} is not what the cards say{advice}"
        f"{folder / 'wmma.md'} belongs to no instruction{advice}"
    )
    assert main([str(folder)]) == 0
    assert differences(folder) == []


def example() -> Specimen:
    return card("ld.global").example


def test_a_card_without_a_twin_for_a_rule_is_refused() -> None:
    whole = card("ld.global")
    with pytest.raises(
        ValueError,
        match=r"^ld\.global: rules without a twin \['ld\.global target', 'ld\.global vector along x', "
        r"'ld\.global width of x'\], twins without a rule \[\]$",
    ):
        Card(
            "ld.global", LdGlobal(1), whole.operands, whole.rules, (), "", "", whole.example,
            tuple(t for t in whole.twins if "alignment" in t.rule), whole.variants,
        )  # fmt: skip


def test_a_specimen_has_one_result_and_it_comes_last() -> None:
    fields = (Field("out", "f32", 1, "out"), Field("x", "f32", 1))
    with pytest.raises(ValueError, match=r"^swap: the last field of a specimen is its result, and the only one$"):
        Specimen("swap", "", fields, lambda x: x)


def test_what_is_legal_is_offered() -> None:
    with pytest.raises(ValueError, match=r"^add: what is legal is offered, and this says 'too dear'$"):
        Variant("add", "sm_80", True, "too dear")
