"""Questions to Z3: verdicts, models, cores, limits, caching and the record."""

import time

import pytest
import z3

from tinygpu.constraints.query import (
    DEFAULT_RLIMIT,
    DEFAULT_SEED,
    Answer,
    ContradictoryAnswer,
    Notebook,
    Query,
    ask,
)


def factors(number: int, *, width: int = 8):
    def build(context):
        a, b = z3.BitVec("a", width, ctx=context), z3.BitVec("b", width, ctx=context)
        wide = z3.ZeroExt(width, a) * z3.ZeroExt(width, b)
        return [wide == number, z3.UGT(a, 1), z3.UGT(b, 1)]

    return build


def test_a_model_gives_every_constant_and_satisfies_the_question():
    answer = ask(Query("factor 221", factors(221), logic="QF_BV"))
    assert answer.verdict == "sat"
    assert answer.model["a"] * answer.model["b"] == 221


def test_a_prime_has_no_factors():
    assert ask(Query("factor 227", factors(227), logic="QF_BV")).verdict == "unsat"


def test_a_constant_that_does_not_matter_has_a_value_all_the_same():
    def build(context):
        x, y, p = z3.Int("x", ctx=context), z3.Int("y", ctx=context), z3.Bool("p", ctx=context)
        return [x == 3, z3.Or(y == y + 0, p)]

    model = ask(Query("one value", build)).model
    assert model["x"] == 3
    assert set(model) <= {"x", "y", "p"}


def test_every_term_is_judged_and_every_constant_valued_under_a_model_that_leaves_some_open():
    """Z3 leaves open what does not matter to it; a term that then cannot be judged is not called broken."""

    def build(context):
        x, y, p = z3.Int("x", ctx=context), z3.Int("y", ctx=context), z3.Bool("p", ctx=context)
        return [z3.Or(x > y, x <= y), z3.Or(p, z3.Not(p)), z3.Implies(p, x * 0 == 0)]

    def branches(context):
        x, y, p = z3.Int("x", ctx=context), z3.Int("y", ctx=context), z3.Bool("p", ctx=context)
        return [p, z3.If(p, x, y * 2) == 3]

    for terms in (build, branches):
        for query in (Query("open", terms), Query("open", lambda c, terms=terms: dict(enumerate(terms(c))))):
            model = ask(query).model
            assert model.keys() == {"x", "y", "p"}
            assert all(isinstance(value, int) for value in model.values())


def test_a_question_that_shares_terms_lists_each_constant_once():
    def build(context):
        terms = [z3.Int("x", ctx=context)]
        for _ in range(40):  # 2^40 paths, 41 terms
            terms.append(terms[-1] + terms[-1])
        return [terms[-1] == 0]

    assert ask(Query("shared", build)).model == {"x": 0}


def test_a_saved_question_begins_with_its_settings_and_ends_with_what_is_asked():
    plain = ask(Query("factor 6", factors(6), logic="QF_BV", rlimit=12345, seed=6)).smtlib.splitlines()
    assert plain[:3] == ["(set-option :rlimit 12345)", "(set-option :smt.random_seed 6)", "(set-logic QF_BV)"]
    assert plain[-1] == "(check-sat)"
    labelled = ask(
        Query("two", lambda c: {"a": z3.Int("x", ctx=c) > 1, "b": z3.Int("x", ctx=c) < 1})
    ).smtlib.splitlines()
    assert not any("set-logic" in line for line in labelled)
    assert labelled[-1] == "(check-sat-assuming (rule!0 rule!1))"


@pytest.mark.parametrize(("rlimit", "seed"), [(12345, 6), (DEFAULT_RLIMIT, DEFAULT_SEED)])
def test_z3_works_under_the_settings_that_the_saved_question_begins_with(monkeypatch, rlimit, seed):
    made = {}
    keep = z3.Solver.set
    monkeypatch.setattr(z3.Solver, "set", lambda solver, *pair: (made.update([pair]), keep(solver, *pair)))
    own = {} if rlimit == DEFAULT_RLIMIT else {"rlimit": rlimit, "seed": seed}
    text = ask(Query("factor 6", factors(6), **own)).smtlib
    assert made == {"rlimit": rlimit, "random_seed": seed}
    assert text.splitlines()[:2] == [f"(set-option :rlimit {rlimit})", f"(set-option :smt.random_seed {seed})"]


def test_every_answer_is_logged_once(caplog):
    notebook = Notebook()
    with caplog.at_level("DEBUG", logger="tinygpu.solver"):
        answers = [ask(Query(name, factors(6)), notebook) for name in ("factor 6", "again")]
    assert [record.getMessage() for record in caplog.records] == [str(answer) for answer in answers]


def test_the_seconds_of_an_answer_are_those_of_the_asking():
    begun = time.perf_counter()
    answer = ask(Query("factor 221", factors(221), logic="QF_BV"))
    assert 0 < answer.seconds <= time.perf_counter() - begun


def test_a_labelled_question_names_the_terms_that_contradict():
    def build(context):
        x = z3.Int("x", ctx=context)
        return {"x is small": x < 3, "x is positive": x > 0, "x is large (really)": x > 10}

    answer = ask(Query("core", build))
    assert answer.verdict == "unsat"
    assert set(answer.core) >= {"x is small", "x is large (really)"}


def test_too_little_resource_is_unknown_and_says_so():
    answer = ask(Query("factor a big number", factors(4294049777, width=24), rlimit=500))
    assert answer.verdict == "unknown"
    assert answer.reason
    assert answer.model == {}


def test_the_same_text_is_answered_from_the_notebook():
    notebook = Notebook()
    first = ask(Query("factor 221", factors(221)), notebook)
    again = ask(Query("once more", factors(221)), notebook)
    other = ask(Query("factor 221", factors(221), rlimit=10_000_000), notebook)
    assert (first.cached, again.cached, other.cached) == (False, True, False)
    assert again.model == first.model
    assert [a.name for a in notebook.record] == ["factor 221", "once more", "factor 221"]
    assert len(notebook.known) == 2


def test_labels_of_a_cached_core_are_those_of_the_new_question():
    def build(names):
        def terms(context):
            x = z3.Int("x", ctx=context)
            return dict(zip(names, [x < 3, x > 10], strict=True))

        return terms

    notebook = Notebook()
    assert set(ask(Query("q", build(["low", "high"])), notebook).core) == {"low", "high"}
    again = ask(Query("q", build(["klein", "gross"])), notebook)
    assert again.cached
    assert set(again.core) == {"klein", "gross"}


def test_the_saved_question_gives_the_same_verdict_when_read_back():
    for number, verdict in ((221, "sat"), (227, "unsat")):
        text = ask(Query("saved", factors(number), logic="QF_BV")).smtlib
        context = z3.Context()
        solver = z3.Solver(ctx=context)
        solver.from_string(text)
        assert str(solver.check()) == verdict


def test_a_model_that_fails_the_outside_check_raises():
    query = Query("checked", lambda c: [z3.Int("x", ctx=c) == 3], check=lambda m: m["x"] == 4)
    with pytest.raises(ContradictoryAnswer) as caught:
        ask(query)
    assert str(caught.value) == (
        "[query checked] the model {'x': 3} fails its check outside the solver; please report this"
    )


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(ValueError) as caught:
        Query("q", factors(4), rlimit=0)
    assert str(caught.value) == "[query q] the resource limit must be a positive integer, not 0"
    assert Query("q", factors(4), rlimit=1).rlimit == 1


def test_equal_questions_give_equal_models_in_a_fresh_context():
    answers = [ask(Query("again", factors(35))) for _ in range(3)]
    assert len({tuple(sorted(a.model.items())) for a in answers}) == 1


def test_an_answer_prints_as_one_line():
    assert str(Answer("q", "unknown", seconds=0.25, reason="max. resource limit exceeded")) == (
        "q: unknown (max. resource limit exceeded) in 250.0 ms"
    )
