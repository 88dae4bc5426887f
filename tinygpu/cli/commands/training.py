"""`tinygpu train`: the policy of the strategy "rl"."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tinygpu.search.rl.train import Training


def train_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="the file that the policy goes to")] = Path("policy.npz"),
    steps: Annotated[int | None, typer.Option(help="how many; those of the shipped policy when left out")] = None,
    seconds: Annotated[float | None, typer.Option(help="how long it learns, without the making of lessons")] = None,
    seed: Annotated[int, typer.Option(help="of the lessons and of every random draw")] = 0,
    triples: Annotated[int, typer.Option(help="how many machines, problems and devices it learns from")] = 400,
    checkpoint: Annotated[
        Path | None, typer.Option(help="a training that was cut goes on from here; OUT.checkpoint when left out")
    ] = None,
) -> None:
    """Train the policy of `--strategy rl` on random problems, machines and devices, under the predictor.

    Without options it makes the policy that ships. A training that was cut is called again and goes on.

    Examples:

    `tinygpu train --out policy.npz`

    `tinygpu train --triples 20 --seconds 60 --seed 7`
    """
    from tinygpu.api.train import SHIPPED_STEPS, Curriculum, train_policy
    from tinygpu.cli.printing import console

    if steps is None and seconds is None:
        steps = SHIPPED_STEPS
    kept = checkpoint or out.with_name(out.name + ".checkpoint")
    with console.status("") as status:
        made = 0

        def on_lesson(name: str) -> None:
            nonlocal made
            made += 1
            status.update(f"lesson {made} of {triples}: {name}")
            if not console.is_terminal and made % 10 == 0:
                console.print(f"... {made} of {triples} lessons")

        def on_step(training: Training) -> None:
            line = _line(training)
            status.update(line)
            if not console.is_terminal and training.step % 20 == 0:
                console.print(f"... {line}")

        curriculum = Curriculum(seed=seed, triples=triples)
        policy = train_policy(
            out, curriculum, steps=steps, seconds=seconds, checkpoint=kept, on_lesson=on_lesson, on_step=on_step
        )
    learned = f"{policy.provenance['steps']} steps over {policy.provenance['lessons learned']} lessons"
    console.print(f"{out}: {learned}, {out.stat().st_size:,} bytes")
    kept.unlink(missing_ok=True)


def _line(training: Training) -> str:
    """Where a training stands: "step 40 of 300, mean reward -0.06 (6 % slower than the best known), 9 min left"."""
    from math import expm1

    of = f" of {training.steps}" if training.steps is not None else ""
    slower = 100 * expm1(-training.learned.reward)
    line = f"step {training.step}{of}, its candidates are {slower:.0f} % slower than the best known"
    here = training.step - training.resumed
    if training.steps is not None and here and training.seconds > 0:
        left = training.seconds / training.step * (training.steps - training.step)
        line += f", {left / 60:.0f} min left" if left > 90 else f", {left:.0f} s left"
    return line
