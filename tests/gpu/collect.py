"""Takes the results of `run.sh` into docs/results: python tests/gpu/collect.py FOLDER."""

import sys

from gpu_call.collect import main

if __name__ == "__main__":
    sys.exit(main())
