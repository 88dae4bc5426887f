"""Step: the dense sample number 0 of the kit."""

import sys

from gpu_call.dense import dense
from gpu_call.step import run_step

if __name__ == "__main__":
    sys.exit(run_step(lambda call: dense(call, 0)))
