"""A call in a process of its own: it answers as it would here, and what ends it costs nothing else."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.api.machines import family
from tinygpu.api.problems import Asked
from tinygpu.api.tune import NothingFound, tune
from tinygpu.devices import device
from tinygpu.processes.apart import EndedApart, run_apart
from tinygpu.ptx.assembling.assembler import AssemblerError, AssemblerUnavailable, Fault

ASKED = Asked({"n": 1000})

def crash(*_: object, **__: object) -> None:
    faulthandler.disable()  # pytest would show where it stood
    os.kill(os.getpid(), signal.SIGSEGV)


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda s: st.lists(s, max_size=3) | st.tuples(s, s), max_leaves=5
)


@given(values)
@settings(max_examples=20)
def test_an_answer_comes_back_as_it_is(value: object) -> None:
    assert run_apart(lambda: value, seconds=60) == value


def test_an_answer_larger_than_a_pipe_comes_back_whole() -> None:
    assert run_apart(lambda: bytes(range(256)) * 20_000, seconds=60) == bytes(range(256)) * 20_000


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        AssemblerUnavailable("no wheels"),
        AssemblerError("sm_80", (Fault("odd", 3, "ret;"),), "log"),
    ],
)
def test_what_is_raised_there_is_raised_here(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        run_apart(fail, seconds=60)
    assert str(raised.value) == str(error)


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (crash, "its process was ended by SIGSEGV (Segmentation fault)"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "its process was ended by SIGKILL (Killed)"),
        (lambda: os._exit(139), "its process ended with status 139"),
    ],
)
def test_a_crash_is_an_answer(end: object, sentence: str) -> None:
    with pytest.raises(EndedApart) as ended:
        run_apart(end, seconds=60)  # type: ignore[arg-type]
    assert str(ended.value) == sentence


def test_what_hangs_is_ended_and_leaves_no_process() -> None:
    with pytest.raises(EndedApart, match=r"^it did not end within 0\.2 s$"):
        run_apart(lambda: time.sleep(600), seconds=0.2)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.end_to_end
def test_a_crash_of_the_verifier_costs_its_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    import tinygpu.api.tune as module

    right = module.verify_kernels
    first: list[object] = []

    def verify(kernels: Any, **named: Any) -> object:
        return crash() if kernels.stages[0].kernel is first[0] else right(kernels, **named)

    monkeypatch.setattr(module, "verify_kernels", verify)
    ranked = tune_without_failures()
    first.append(ranked.winner.built.kernel)
    monkeypatch.setattr(module, "finalists_of", lambda objective, *rest: finalists_of(ranked, objective.space))
    found = tune(family("axpby"), ASKED, device("a100"))
    assert found.winner is not ranked.winner
    assert found.verification.passed
    (failure,) = found.failed
    point = " ".join(f"{k}={v}" for k, v in ranked.winner.refined.point.items())
    assert str(failure) == f"verification of Axpby {point}: its process was ended by SIGSEGV (Segmentation fault)"


def tune_without_failures():  # type: ignore[no-untyped-def]
    import tinygpu.api.tune as module

    kept = module.verify_kernels
    module.verify_kernels = lambda *a, **k: None  # type: ignore[assignment]
    try:
        return tune(family("axpby"), ASKED, device("a100"))
    finally:
        module.verify_kernels = kept


def finalists_of(tuned, space):  # type: ignore[no-untyped-def]
    return next(s.finalists for s in tuned.searched if s.space.machine is space.machine)


@pytest.mark.end_to_end
def test_a_crash_of_the_assembler_on_every_candidate_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinygpu.api.finalist.assemble", crash)
    with pytest.raises(NothingFound) as nothing:
        tune(family("axpby"), ASKED, device("a100"))
    assert str(nothing.value).startswith("assembling of Axpby ")
    assert "its process was ended by SIGSEGV (Segmentation fault)" in str(nothing.value)
