"""Removing or weakening one synchronisation of a kernel is noticed, or is shown to change nothing.

Subjects are the kernels of shipped machines and kernels that nvcc and Triton compiled. A mutant is caught by a fault,
by an advisory that the original has not, or by a wrong result, under one of the orders; what is not caught must be
listed with its reason (mutations/equivalent.py). The quick suite judges a sample, `-m slow` every mutant.
"""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module
from mutations.equivalent import EQUIVALENT
from mutations.every_subject import every_subject
from mutations.operators import Mutant, mutants
from mutations.score import ORDERS, Verdict, outcome, table, verdicts
from mutations.statements import isolate, statements
from mutations.subjects import Launch, Source, Subject

SUBJECTS = every_subject()
# Of every fourth subject so many mutants belong to the sample, judged under the first orders.
SAMPLE = 1


def sample(subject: Subject) -> list[Mutant]:
    """The same few mutants of a subject in every run, of different kinds where there are."""
    found = mutants(subject.text, subject.entry)
    mixed = np.random.default_rng(len(subject.text)).permutation(len(found))
    chosen: dict[str, Mutant] = {}
    for n in mixed:
        chosen.setdefault(found[n].kind, found[n])
    return list(chosen.values())[:SAMPLE]


@pytest.mark.end_to_end
@pytest.mark.parametrize("subject", SUBJECTS[::48], ids=str)
def test_some_lost_synchronisation_is_noticed(subject: Subject) -> None:
    missed = [str(v) for v in verdicts(subject, sample(subject), ORDERS[:4]) if v.missed]
    assert not missed, "\n".join(missed)


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_every_lost_synchronisation_is_noticed(subject: Subject) -> None:
    found = list(verdicts(subject))
    print(table(found))
    missed = [str(v) for v in found if v.missed]
    assert not missed, "\n".join(missed)
    listed = EQUIVALENT.get(subject.name, {})
    assert set(listed) <= {v.mutant.name for v in found}, "reasons for mutants that do not exist"
    assert not [str(v) for v in found if v.caught and v.mutant.name in listed], "reasons for mutants that are caught"


MACHINES = [s for s in SUBJECTS if s.name.startswith(("machine matmul_skinny ", "machine matmul_hopper"))]


def without_retries(subject: Subject) -> list[Mutant]:
    return [m for m in mutants(subject.text, subject.entry) if m.kind == "retry"]


@pytest.mark.parametrize("subject", MACHINES[::8], ids=str)
def test_a_kernel_that_tries_only_once_is_noticed(subject: Subject) -> None:
    assert outcome(subject, subject.text, "spurious", 0)[0] == ""
    found = without_retries(subject)
    chosen = found[len(found) // 2]
    assert outcome(subject, chosen.text, "spurious", 0)[0], str(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_every_kernel_that_tries_only_once_is_noticed(subject: Subject) -> None:
    """One run is enough: nothing is left to the luck of an order."""
    missed = [str(v) for v in verdicts(subject, without_retries(subject), (("spurious", 0),)) if v.missed and v.reached]
    assert not missed, "\n".join(missed)


def test_every_reason_belongs_to_a_subject() -> None:
    assert set(EQUIVALENT) <= {subject.name for subject in SUBJECTS}


TEXT = """
.visible .entry other() { bar.sync 0; ret; }
.visible .entry k(.param .u64 a)
{
    .reg .pred %p; // bar.sync 1;
    /* bar.sync 2; */ .reg .b32 %r<4>;
    @!%p bar.sync 3, 64;
W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%r1], %r2;
    @!%p bra W;
    mbarrier.arrive.expect_tx.shared.b64 _,
        [%r1], 512;
    { .reg .pred q; cp.async.wait_group 1; }
    ret;
}
"""


def test_statements_of_one_kernel() -> None:
    found = statements(TEXT, "k")
    assert [str(s) for s in found] == [
        "@!%p bar.sync 3, 64;",
        "mbarrier.try_wait.parity.shared::cta.b64 %p, [%r1], %r2;",
        "@!%p bra W;",
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;",
        "cp.async.wait_group 1;",
        "ret;",
    ]
    assert "other" not in isolate(TEXT, "k")
    with pytest.raises(LookupError, match=r"^no kernel 'z'; there are other, k$"):
        statements(TEXT, "z")


def test_mutants_of_one_kernel() -> None:
    found = mutants(TEXT, "k")
    assert [m.name for m in found] == [
        "barrier 0", "barrier's count 0", "barrier's count 1", "mbarrier wait 0", "parity 0", "mbarrier order 0",
        "parity 1", "parity 2", "mbarrier order 1", "expect_tx 0", "arrival 0", "expect_tx bytes 0",
        "expect_tx bytes 1", "expect_tx bytes 2", "wait group 0", "wait group 1", "retry 0",
    ]  # fmt: skip
    by_name = {m.name: m for m in found}
    assert "@!%p" not in by_name["barrier 0"].text.split("W:")[0]
    assert "@!%p bar.sync 3, 96;" in by_name["barrier's count 1"].text
    assert "W: setp.eq.u32 %p, 0, 0;" in by_name["mbarrier wait 0"].text
    assert "xor.b32 %mutated, %r2, 1; mbarrier.try_wait.parity" in by_name["parity 0"].text
    assert "parity.shared::cta.b64 %p, [%r1], 0;" in by_name["parity 1"].text
    assert "setp.ne.u32 %other, %bit, 0; @%other trap; mbarrier.try_wait" in by_name["parity 1"].probe
    assert "mbarrier.arrive.expect_tx.relaxed.cta.shared.b64 _, [%r1], 512;" in by_name["mbarrier order 1"].text
    assert "mbarrier.arrive.shared.b64 _, [%r1];" in by_name["expect_tx 0"].text
    assert "[%r1], 256;" in by_name["expect_tx bytes 2"].text
    assert "cp.async.wait_group 2;" in by_name["wait group 1"].text
    assert all(m.text.count("\n") == TEXT.count("\n") for m in found)


def test_a_mutant_that_nothing_notices_is_a_miss() -> None:
    """A kernel that is told to have been right whatever it does: only faults and advisories are left to notice."""
    body = module("bar.sync 0;\nret;", [".param .u64 a"])
    launch = Launch({"grid": 1, "block": 64, "args": [0]}, lambda: True)
    subject = Subject("one barrier", lambda: Source(body, "k", lambda: launch))
    (verdict,) = verdicts(subject)
    assert verdict.missed
    assert str(verdict) == "one barrier: barrier 0 (line 7): left out: bar.sync 0; -> MISSED"
    assert table([verdict]).endswith("| all | 1 | 0 | 0 | 0 | 0 | 1 |")
    caught = Verdict("s", verdict.mutant, "fault", "race")
    assert table([caught]).endswith("| all | 1 | 1 | 0 | 0 | 0 | 0 |")
