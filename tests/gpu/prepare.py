"""Prepares the kit of `run.sh`, on a machine without a GPU: python tests/gpu/prepare.py [-o FILE] [--small]."""

import sys

from gpu_call.prepare import main

if __name__ == "__main__":
    sys.exit(main())
