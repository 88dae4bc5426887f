"""One question to Z3: asked in a context of its own, with a fixed seed and a resource limit.

The rules of the house for solver code live here, so that no caller has to repeat them: one solver per question,
*unknown* is a third answer, answers are kept by the text of the question, every question is logged with its verdict
and its time, every model is checked before it is handed out, and every question can be saved as SMT-LIB.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import z3

Verdict: TypeAlias = Literal["sat", "unsat", "unknown"]
Terms: TypeAlias = "Iterable[Any] | Mapping[str, Any]"

# Z3 spends some 5 to 10 million units a second on bit-vector and small integer questions (z3 5.4, one core).
DEFAULT_RLIMIT = 50_000_000
DEFAULT_SEED = 1

_log = logging.getLogger("tinygpu.solver")


class ContradictoryAnswer(RuntimeError):
    """A solver's model that does not satisfy the question it was asked: a fault of ours or of Z3, never of the user."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question: is there a value for every constant so that all terms hold?

    name    what is asked, in words, for the log: "conflict-free swizzle of 16x32 f32"
    build   makes the terms in the given Z3 context; a mapping {label: term} asks for an unsatisfiable core as well
    logic   an SMT-LIB logic ("QF_BV", "QF_LIA"), or "" for Z3's own choice
    check   judges a model ({constant: value}) by other means than Z3; a model that it refuses raises
    rlimit  resource limit in Z3's own units; deterministic, unlike wall time
    seed    seed of Z3's random choices
    """

    name: str
    build: Callable[[Any], Terms]
    logic: str = ""
    check: Callable[[Mapping[str, int]], bool] | None = None
    rlimit: int = DEFAULT_RLIMIT
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        if self.rlimit <= 0:
            raise ValueError(f"[query {self.name}] the resource limit must be a positive integer, not {self.rlimit}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What Z3 said.

    verdict  "sat", "unsat" or "unknown"
    model    the value of every constant of the question (bit-vectors as non-negative integers, Booleans as 0 and 1)
             when sat, else empty
    core     labels of terms that contradict each other, when unsat and the terms had labels; not minimal
    seconds  wall time of the query; the time of the first asking when cached
    smtlib   the question as SMT-LIB 2 text
    reason   why the verdict is unknown, in Z3's words
    cached   True when the answer was known already
    """

    name: str
    verdict: Verdict
    model: Mapping[str, int] = field(default_factory=dict)
    core: tuple[str, ...] = ()
    seconds: float = 0.0
    smtlib: str = ""
    reason: str = ""
    cached: bool = False

    def __str__(self) -> str:
        because = f" ({self.reason})" if self.reason else ""
        again = ", known already" if self.cached else ""
        return f"{self.name}: {self.verdict}{because} in {self.seconds * 1e3:.1f} ms{again}"


@dataclass(slots=True, eq=False)
class Notebook:
    """The answers known so far, by the text of their question, and the record of every asking, in order."""

    known: dict[str, Answer] = field(default_factory=dict)
    record: list[Answer] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(str(answer) for answer in self.record)


def ask(query: Query, notebook: Notebook | None = None) -> Answer:
    """The answer to `query`; taken from the notebook when the same text was asked before.

    Raises `ContradictoryAnswer` when a model does not satisfy the question.
    """
    context = z3.Context()
    solver = z3.SolverFor(query.logic, ctx=context) if query.logic else z3.Solver(ctx=context)
    terms = query.build(context)
    labelled = isinstance(terms, Mapping)
    pairs: list[tuple[str, Any]] = list(terms.items()) if isinstance(terms, Mapping) else [("", t) for t in terms]
    plain = [term for _, term in pairs]
    if labelled:
        # The labels stay out of the solver: literals stand for them, so that a label may be any text.
        literals = {f"rule!{i}": z3.Bool(f"rule!{i}", ctx=context) for i in range(len(pairs))}
        for literal, term in zip(literals.values(), plain, strict=True):
            solver.add(z3.Implies(literal, term))
    else:
        literals = {}
        solver.add(*plain)
    smtlib = _smtlib(query, solver, list(literals))
    if notebook is not None and smtlib in notebook.known:
        return _log_answer(_relabel(replace(notebook.known[smtlib], name=query.name, cached=True), pairs), notebook)
    solver.set("rlimit", query.rlimit)
    solver.set("random_seed", query.seed)
    start = time.perf_counter()
    result = solver.check(*literals.values())
    seconds = time.perf_counter() - start
    answer = Answer(name=query.name, verdict="unknown", seconds=seconds, smtlib=smtlib)
    if result == z3.sat:
        answer = replace(answer, verdict="sat", model=_read_model(query, solver.model(), plain))
    elif result == z3.unsat:
        answer = replace(answer, verdict="unsat", core=tuple(str(c) for c in solver.unsat_core()) if labelled else ())
    else:
        answer = replace(answer, reason=str(solver.reason_unknown()))
    if notebook is not None:
        notebook.known[smtlib] = answer
    return _log_answer(_relabel(answer, pairs), notebook)


def _log_answer(answer: Answer, notebook: Notebook | None) -> Answer:
    _log.debug("%s", answer)
    if notebook is not None:
        notebook.record.append(answer)
    return answer


def _smtlib(query: Query, solver: Any, literals: list[str]) -> str:
    """The whole question, settings included, in a form that Z3's command line runs as it stands."""
    logic = f"(set-logic {query.logic})\n" if query.logic else ""
    check = f"(check-sat-assuming ({' '.join(literals)}))" if literals else "(check-sat)"
    settings = f"(set-option :rlimit {query.rlimit})\n(set-option :smt.random_seed {query.seed})\n"
    return f"{settings}{logic}{solver.sexpr()}{check}\n"


def _relabel(answer: Answer, pairs: list[tuple[str, Any]]) -> Answer:
    if not answer.core:
        return answer
    members = sorted(int(literal.partition("!")[2]) for literal in answer.core)
    return replace(answer, core=tuple(pairs[i][0] for i in members))


def _read_model(query: Query, model: Any, terms: list[Any]) -> dict[str, int]:
    """The value of every constant in `terms`, after checking that all terms hold under them."""
    broken = [t for t in terms if not z3.is_true(model.eval(t, model_completion=True))]
    values: dict[str, int] = {}
    for constant in _constants(terms):
        value = model.eval(constant, model_completion=True)
        values[constant.decl().name()] = int(z3.is_true(value)) if z3.is_bool(value) else int(value.as_long())
    if broken:
        raise ContradictoryAnswer(
            f"[query {query.name}] the model {values} does not satisfy {broken[0]}; please report this with the query"
        )
    if query.check is not None and not query.check(values):
        raise ContradictoryAnswer(
            f"[query {query.name}] the model {values} fails its check outside the solver; please report this"
        )
    return values


def _constants(terms: list[Any]) -> list[Any]:
    """The uninterpreted constants in `terms`, each once, in order of first sight."""
    seen: set[int] = set()
    found: list[Any] = []
    stack = list(reversed(terms))
    while stack:
        node = stack.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        if z3.is_const(node) and node.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found.append(node)
        stack.extend(reversed(node.children()))
    return found
