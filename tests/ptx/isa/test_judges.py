"""Every rule has a judge: legal if and only if it assembles; illegal twins are refused, and legal ones pass."""

from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.cards import cards, complaint, refusal, refused_by_assembler, refused_by_emulator, refused_variants
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    FieldMap,
    Specimen,
    Twin,
    Variant,
    compute_capability,
    exists_on,
)

pytest.importorskip("cuda.bindings", reason="judging needs the assembler")

CARDS = {card.name: card for card in cards()}
TWINS = [(card.name, twin) for card in cards() for twin in card.twins]


@cache
def domain(name: str) -> dict[str, list[Variant]]:
    """The variants of one card, by target."""
    out: dict[str, list[Variant]] = defaultdict(list)
    for variant in CARDS[name].variants():
        out[variant.target].append(variant)
    return out


@pytest.mark.sampled(6)
@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_the_example_assembles_for_every_later_target_and_runs(card: Card) -> None:
    example = card.example
    for target in {example.architecture, *(t for t, _ in TARGETS)}:
        runs = target == example.architecture if example.specific else compute_capability(target) >= example.target
        assert (refused_by_assembler(example, target) == "") == runs, target
    assert refused_by_emulator(example) == ""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
@pytest.mark.end_to_end
def test_legal_by_the_rules_if_and_only_if_it_assembles(card: Card) -> None:
    wrong = []
    for target, variants in domain(card.name).items():
        refused = refused_variants([v.text for v in variants], target)
        for i, variant in enumerate(variants):
            if variant.not_offered:
                if i in refused:
                    wrong.append(f"{target}: {variant.text} is said to exist ({variant.not_offered}): {refused[i]}")
            elif variant.legal == (i in refused):
                wrong.append(f"{target}: {variant.text}: legal {variant.legal}, assembler {refused.get(i, 'takes it')}")
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_the_domain_of_a_rule_has_both_legal_and_illegal_members(card: Card) -> None:
    seen = set()
    for target, variants in domain(card.name).items():
        seen.add(exists_on(card.instruction, target))
        assert any(v.legal for v in variants) == exists_on(card.instruction, target), target
        assert any(not v.legal and not v.not_offered for v in variants), target
    assert True in seen


@settings(max_examples=60)
@given(st.data())
def test_variants_that_assemble_together_assemble_alone(data: st.DataObject) -> None:
    by_target = domain(data.draw(st.sampled_from(sorted(CARDS))))
    target = data.draw(st.sampled_from(sorted(by_target)))
    some = data.draw(st.lists(st.sampled_from(by_target[target]), min_size=1, max_size=6, unique_by=lambda v: v.text))
    together = refused_variants([v.text for v in some], target)
    for i, variant in enumerate(some):
        assert (i in together) == bool(refused_variants([variant.text], target)), variant.text


def test_one_bad_statement_among_good_ones_is_the_one_that_is_refused() -> None:
    texts = ["add.u32 %r0, %r1, %r2;", "add.u33 %r0, %r1, %r2;", "cvt.f64.f32 %d0, %r1;", "bar.sync 16;"]
    assert refused_variants(texts, "sm_80") == {
        1: "Unknown modifier '.u33'",
        3: "Barrier number '16' out of range, expected to be in range [0..15]",
    }


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "twin"), TWINS, ids=[f"{name}: {twin.rule}" for name, twin in TWINS])
def test_the_judge_refuses_the_illegal_twin_in_the_words_of_the_card_and_passes_the_legal_one(
    name: str, twin: Twin
) -> None:
    assert complaint(twin) == ""
    said = refusal(twin)
    assert twin.refusal in said
    if twin.refusal == WRONG_VALUES:
        assert said == WRONG_VALUES


def test_a_tensor_map_describes_a_field_of_its_specimen() -> None:
    fields = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
    with pytest.raises(ValueError, match=r"^copy: there is no field y for a tensor map to describe$"):
        Specimen("copy", "", fields, lambda x: x, maps=(FieldMap("y", (4,), (4,), 32),))


def test_a_specimen_of_several_ctas_counts_their_threads_through() -> None:
    lines = "ld.global.b32 %r0, [%x];\nst.global.b32 [%out], %r0;"
    fields = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
    made = Specimen("copy", lines, fields, lambda x: x, 90, (7, 8), 48, ctas=4)
    assert refused_by_emulator(made) == ""
    assert refused_by_emulator(replace(made, meaning=lambda x: x[::-1])) == WRONG_VALUES


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_the_judge_of_a_twin_is_the_judge_of_its_rule(card: Card) -> None:
    judges = {rule.name: rule.judge for rule in card.rules} | {g.name: g.judge for g in card.guarantees}
    assert {t.rule: t.judge for t in card.twins} == judges
