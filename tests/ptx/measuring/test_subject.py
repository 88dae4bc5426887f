"""A question on a GPU: its inputs, its answers, what verification lets through, and how samples are taken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from small_kernels import add_launch, add_ptx, add_question, counting_launch, counting_ptx

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.measuring.bundle import Question
from tinygpu.ptx.measuring.intervals import GUARD_ELEMS
from tinygpu.ptx.measuring.reference import record
from tinygpu.ptx.measuring.statistics import ratio
from tinygpu.ptx.measuring.subject import Subject, draw
from tinygpu.ptx.measuring.timing import Protocol, Stopwatch, take_turns
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.launch import Tensor
from tinygpu.ptx.runtime.loaded import load_kernel


def opened(**gpu: Any) -> tuple[FakeCuda, Context]:
    fake = FakeCuda(**gpu)
    return fake, open_context(Driver(fake))


def verified(tmp_path: Path, ptx: str, n: int = 300) -> str:
    _, context = opened()
    subject = Subject(context, add_question(n), 0, tmp_path)
    return subject.verify(load_kernel(context, add_launch(n), ptx.encode()))


def test_a_right_kernel_passes(tmp_path: Path) -> None:
    assert verified(tmp_path, add_ptx()) == ""


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"last": "mul.f32 %f0, %f0, %f2;"}, "elements are wrong"),
        ({"last": ""}, "300 of 300 elements are wrong"),
        ({"offset": 4}, "elements are wrong"),
    ],
)
def test_a_wrong_kernel_does_not(tmp_path: Path, changed: dict[str, Any], end: str) -> None:
    assert verified(tmp_path, add_ptx(**changed)).endswith(end)


def test_what_is_written_behind_the_end_is_seen(tmp_path: Path) -> None:
    """Right values, and as many more behind the last."""
    behind = add_ptx().replace("  ret;\n}", "  st.global.f32 [%d2+1200], %f0;\n  ret;\n}")
    assert verified(tmp_path, behind) == "y: bytes between its rows or behind its end were written (integers inputs)"


def test_elements_that_are_never_written_are_seen(tmp_path: Path) -> None:
    _, context = opened()
    subject = Subject(context, add_question(300), 0, tmp_path)
    short = load_kernel(context, add_launch(300, ctas=4), add_ptx().encode())
    sentence = subject.verify(short)
    assert sentence.startswith("y[256] is nan, and ")
    assert sentence.endswith(" is right (integers inputs); 44 of 300 elements are wrong")


def test_what_a_kernel_leaves_does_not_pass_for_the_next_ones_result(tmp_path: Path) -> None:
    _, context = opened()
    subject = Subject(context, add_question(100), 0, tmp_path)
    assert subject.verify(load_kernel(context, add_launch(100), add_ptx().encode())) == ""
    idle = load_kernel(context, add_launch(100), add_ptx(last="ret;").encode())
    assert subject.verify(idle).endswith("100 of 100 elements are wrong")


def test_inputs_are_the_same_in_every_memory_layout() -> None:
    row = add_question(12)
    tensors = (
        Tensor("b", "bf16", (4, 3), (3, 1), 16, "in"), Tensor("a", "f16", (3, 4), (4, 1), 16, "in"),
        Tensor("c", "f32", (3, 3), (3, 1), 16, "out"),
    )  # fmt: skip
    other = (
        Tensor("a", "f16", (3, 4), (1, 8), 16, "in"), Tensor("b", "bf16", (4, 3), (1, 4), 16, "in"),
        Tensor("c", "f32", (3, 3), (5, 1), 16, "out"),
    )  # fmt: skip
    graph = record(lambda a, b: a @ b, ["a", "b"], {}, ["c"], "Mine")
    first = Question("q", {}, tensors, (("s", "f32"),), graph, Rounding(True))
    second = Question("q", {}, other, (("s", "f32"),), graph, Rounding(True))
    for inputs in ("integers", "random"):
        (one, scalars), (two, again) = draw(first, inputs, 5), draw(second, inputs, 5)  # type: ignore[arg-type]
        assert scalars == again
        for name in ("a", "b"):
            np.testing.assert_array_equal(one[name], two[name])
        values = first.tensor("a").element.decode(one["a"])
        assert (values == np.round(values)).all() == (inputs == "integers")
        assert np.abs(values).max() <= (3 if inputs == "integers" else 1)
    assert row.scalars == (("s", "f32"),)


def test_answers_are_worked_out_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, context = opened()
    first = Subject(context, add_question(100), 0, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        f"{inputs}-{name}"
        for inputs in ("integers", "random")
        for name in ("0.npy", "1.npy", "2.npy", "3.npy", "scalars.json")
    )
    monkeypatch.setattr(Subject, "_work_out", None)
    _, context = opened()
    second = Subject(context, add_question(100), 0, tmp_path)
    assert second.scalars == first.scalars
    kernel = load_kernel(context, add_launch(100), add_ptx().encode())
    assert second.verify(kernel) == ""


def test_a_matrix_with_gaps_is_judged_in_its_gaps_too(tmp_path: Path) -> None:
    """A kernel for one long vector fills the gaps of a matrix: right values everywhere, and still wrong."""
    _, context = opened()
    graph = record(lambda x, z, s: np.maximum(x + z, s), ["x", "z", "s"], {}, ["y"], "Add")
    tensors = tuple(
        Tensor(name, "f32", (4, 6), (8, 1), 16, access)  # type: ignore[arg-type]
        for name, access in (("x", "in"), ("z", "in"), ("y", "out"))
    )
    question = Question("gaps", {}, tensors, (("s", "f32"),), graph, Rounding(True))
    subject = Subject(context, question, 0, tmp_path)
    ptx = add_ptx(last="max.f32 %f0, %f0, %f2;")  # of no number and a number it is the number
    kernel = load_kernel(context, add_launch(30, tensors=tensors), ptx.encode())
    assert subject.verify(kernel) == "y: bytes between its rows or behind its end were written (integers inputs)"


# --- samples ------------------------------------------------------------------------------------------------------


def watch(tmp_path: Path, protocol: Protocol, n: int = 1000, **gpu: Any) -> tuple[FakeCuda, Context, Stopwatch]:
    fake, context = opened(**gpu)
    return fake, context, Stopwatch(Subject(context, add_question(n), 0, tmp_path), protocol)


def test_sets_are_as_many_as_the_l2_forgets(tmp_path: Path) -> None:
    each = 3 * (4000 + 4 * GUARD_ELEMS)
    _, _, small = watch(tmp_path, Protocol(), l2_bytes=3 * each)
    assert (small.mode, small.sets()) == ("rotate", 7)
    _, _, large = watch(tmp_path, Protocol(), l2_bytes=1000 * each)
    assert (large.mode, large.sets()) == ("flush", 1)
    _, _, tiny = watch(tmp_path, Protocol(), l2_bytes=1)
    assert (tiny.mode, tiny.sets()) == ("rotate", 2)


@pytest.mark.end_to_end
@pytest.mark.parametrize("l2_bytes", [1 << 16, 1 << 24])
def test_samples_give_the_time_of_a_launch(tmp_path: Path, l2_bytes: int) -> None:
    """Overwriting the L2 takes time of its own, which is not the kernel's."""
    protocol = Protocol(samples=5, warm_samples=3, race_pairs=50)
    fake, context, clock = watch(tmp_path, protocol, l2_bytes=l2_bytes, noise=0.0)
    kernels = [load_kernel(context, add_launch(), add_ptx(f"fake: us={us}").encode()) for us in (30, 60)]
    samples = take_turns((clock, kernels[0]), (clock, kernels[1]), protocol, 0, lambda: 0.0)
    assert samples.mode == ("rotate" if l2_bytes == 1 << 16 else "flush")
    for taken, counts in ((samples.cold, 5), (samples.warm, 3)):
        for seconds, us in zip(taken, (30, 60), strict=True):
            assert seconds == pytest.approx([us * 1e-6] * counts)
    assert fake.count("cuGraphInstantiate") == fake.count("cuGraphExecDestroy") == 4
    assert fake.count("cuEventCreate") == fake.count("cuEventDestroy")


def test_turns_alternate_in_an_order_drawn_from_the_seed(tmp_path: Path) -> None:
    protocol = Protocol(samples=12, warm_samples=0, race_pairs=50)
    fake, context, clock = watch(tmp_path, protocol, l2_bytes=1, noise=0.0)
    kernels = [load_kernel(context, add_launch(), add_ptx(f"fake: us={us}").encode()) for us in (30, 60)]
    fake.calls.clear()
    take_turns((clock, kernels[0]), (clock, kernels[1]), protocol, 3, lambda: 0.0)
    graphs = [arguments[0] for name, arguments in fake.calls if name == "cuGraphLaunch"][-24:]
    pairs = [tuple(graphs[i : i + 2]) for i in range(0, len(graphs), 2)]
    assert len(pairs) == 12
    assert len(set(pairs)) == 2  # each pair has both, in either order
    assert all(len(set(pair)) == 2 for pair in pairs)


@pytest.mark.end_to_end
def test_one_kernel_under_two_names_is_a_tie_whatever_the_clock_does(tmp_path: Path) -> None:
    """Two hundred A/A tests on a chip that jitters and slows down."""
    protocol = Protocol(samples=12, warm_samples=0, sample_s=1e-4, warm_up_s=0)
    fake, context, clock = watch(tmp_path, protocol, n=10, l2_bytes=1, noise=0.02, drift=1e-4)
    fake.emulating = False
    same = [load_kernel(context, add_launch(10), add_ptx().encode()) for _ in range(2)]
    ties = 0
    for seed in range(200):
        samples = take_turns((clock, same[0]), (clock, same[1]), protocol, seed, lambda: 0.0)
        ties += ratio(*samples.cold).verdict(0.002) == "tie"
    assert ties >= 190


def test_a_lost_race_and_a_spent_budget_end_the_turns(tmp_path: Path) -> None:
    protocol = Protocol(samples=40, warm_samples=4)
    _, context, clock = watch(tmp_path, protocol, l2_bytes=1)
    slow, fast = (load_kernel(context, add_launch(), add_ptx(f"fake: us={us}").encode()) for us in (300, 100))
    samples = take_turns((clock, slow), (clock, fast), protocol, 0, lambda: 0.0)
    assert [len(s) for s in (*samples.cold, *samples.warm)] == [8, 8, 0, 0]
    ticks = iter(float(t) for t in range(10_000))
    samples = take_turns((clock, fast), (clock, fast), protocol, 0, lambda: next(ticks))
    assert len(samples.cold[0]) == 18  # eight make an interval; then the clock is looked at, till 10 s are gone


@pytest.mark.parametrize("changed", [{"samples": 0}, {"race_pairs": 0}, {"race_factor": 1.0}])
def test_a_protocol_that_measures_nothing_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^a protocol has at least one sample and a race factor above 1: Protocol\("):
        Protocol(**changed)


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("each", [False, True])
def test_a_workspace_that_is_not_left_as_it_was_is_seen(tmp_path: Path, left: int, each: bool) -> None:
    _, context = opened()
    subject = Subject(context, add_question(300), 0, tmp_path)
    kernel = load_kernel(context, counting_launch(300, each), counting_ptx(left).encode())
    wrong = "w is left with other bytes than zeros, which the next launch relies on"
    assert subject.verify(kernel) == (wrong if left else "")
