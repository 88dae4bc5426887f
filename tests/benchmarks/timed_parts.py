"""CPU seconds of what is done with one machine, in this process: a child of tests.benchmarks.beside_commit.

    python timed_parts.py '{"machine": "axpby", "device": "a100", "dims": {"n": 64}, "candidates": 4, "predicted": 9}'

Prints a JSON object: seconds by part, and hashes of what was made. It runs with the package of either checkout, and so
says nothing that only one of them knows: the front door, and what is named in `program_of` and `lowering`.
"""

import gc
import hashlib
import json
import re
import sys
import time

COMMENT = re.compile(r"[ \t]*//[^\n]*")


class Clock:
    """CPU seconds of this process since the last part ended.

    Garbage is collected between parts, off the clock: else one of them pays for the objects of all before it.
    """

    def __init__(self):
        self.seconds, self.begun = {}, time.process_time()

    def done(self, part):
        now = time.process_time()
        self.seconds[part] = now - self.begun
        gc.collect()
        self.begun = time.process_time()


def program_of(space):
    """What fills in a candidate; until 23 November 2026 it was called `fill`."""
    return getattr(space, "program", None) or space.fill


def lowering():
    """What makes a kernel of a filled program; until 23 November 2026 it stood elsewhere."""
    try:
        from tinygpu.ptx.lowering.build import build
    except ImportError:
        from tinygpu.ptx.build import build
    return build


def timed(asked):
    clock = Clock()
    import tinygpu as tg

    clock.done("import tinygpu")
    front = tg.space  # asked for, it loads the library
    clock.done("front door")
    import numpy as np

    import tinygpu.language  # noqa: F401  (machines are written with it, and with the instructions)
    from tinygpu.api.machines import family
    from tinygpu.ptx import isa
    from tinygpu.search.predicted import PredictedTime
    from tinygpu.solver.smem import SolverCache

    build, _ = lowering(), [getattr(isa, name) for name in isa.__all__]
    clock.done("rest of it")
    (machine,) = family(asked["machine"]).machines
    clock.done("declare")
    space = front(machine, asked["dims"], device=asked["device"])
    clock.done("space")
    size = space.size
    points = space.sample(asked["candidates"], seed=1)
    clock.done("count, draw")
    programs = [program_of(space)(point) for point in points]
    clock.done("fill")
    cache = SolverCache()
    kernels = [build(program, space.problem, p, cache).kernel for program, p in zip(programs, points, strict=True)]
    clock.done("lower")
    drawn = space.sample(asked["predicted"], seed=2)
    columns = {name: np.array([point[name] for point in drawn]) for name in drawn[0]}
    objective = PredictedTime(space)
    clock.begun = time.process_time()
    predicted = objective.score_columns(columns)
    clock.done("predict")
    made = {
        "candidates": [size, points, drawn],
        "kernels": [COMMENT.sub("", kernel.ptx) for kernel in kernels],
        "predictions": predicted.tolist(),
    }
    hashes = {what: hashlib.sha256(json.dumps(value).encode()).hexdigest() for what, value in made.items()}
    return {"seconds": clock.seconds, "made": hashes}


if __name__ == "__main__":
    print(json.dumps(timed(json.loads(sys.argv[1]))))
