"""`tinygpu train`: lessons from devices that are not held out, the same file from the same seed, and cut runs."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tinygpu.api.train import HELD_OUT_DEVICES, SHARES, Curriculum, Triple, draw_triples, lessons, train_policy
from tinygpu.cli.app import app
from tinygpu.devices import devices
from tinygpu.search.rl.policy import Policy

CHAINS = {"bias_relu": 0.5, "axpby": 0.5}
SMALL = Curriculum(seed=4, triples=3, imagined=1, points=50, shares=CHAINS)


def test_held_out_devices_are_in_the_library_and_in_no_lesson() -> None:
    able = {d.name for d in devices() if d.cc >= 80}
    assert set(HELD_OUT_DEVICES) < able
    seen = {t.device for t in itertools.islice(draw_triples(1, shares=CHAINS), 40)}
    kept = {t.device for t in itertools.islice(draw_triples(1, held_out=True, shares=CHAINS), 40)}
    assert seen <= able - set(HELD_OUT_DEVICES)
    assert kept == set(HELD_OUT_DEVICES)
    assert set(SHARES) >= set(CHAINS)


def test_draws_depend_on_the_seed_alone() -> None:
    def drawn(seed: int, held_out: bool = False) -> list[Triple]:
        return list(itertools.islice(draw_triples(seed, held_out=held_out, shares=CHAINS), 6))

    assert drawn(3) == drawn(3) != drawn(5)
    assert [t.dims for t in drawn(3, held_out=True)] != [t.dims for t in drawn(3)]


def test_each_triple_gives_its_lesson_and_imagined_ones() -> None:
    named: list[str] = []
    found = lessons(SMALL, named.append)
    assert len(named) == 3
    assert len(found) == 6
    assert all("imagined" in lesson.name for lesson in found[1::2])
    assert all(lesson.situation.tree.leaves <= 50 and lesson.rewards.max() == 0 for lesson in found)
    # the same points, other times
    assert np.array_equal(found[0].situation.tree.codes, found[1].situation.tree.codes)
    assert not np.array_equal(found[0].rewards, found[1].rewards)


@pytest.mark.end_to_end
def test_the_same_curriculum_gives_the_same_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    policy = train_policy(first, SMALL, steps=2)
    train_policy(second, SMALL, steps=2)
    assert Policy.load(first).provenance == Policy.load(second).provenance
    assert all(np.array_equal(w, Policy.load(second).weights[n]) for n, w in policy.weights.items())
    assert policy.provenance["devices held out"] == list(HELD_OUT_DEVICES)
    assert policy.provenance["curriculum"]["seed"] == 4


def test_the_command_writes_a_policy_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "policy.npz"
    # with this seed the first triple is a small one
    done = CliRunner().invoke(app, ["train", "--triples", "1", "--steps", "1", "--seed", "4", "--out", str(out)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "1 steps over 2 lessons" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.npz"]
    assert Policy.load(out).provenance["seed"] == 4


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "policy.npz", tmp_path / "cut"
    train_policy(out, SMALL, steps=1, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="this checkpoint belongs to another training: its lessons is"):
        train_policy(out, Curriculum(seed=4, triples=2, points=50, shares=CHAINS), steps=2, checkpoint=checkpoint)
