"""Times the kernels of a bundle on the GPU of this machine: python -m tinygpu.ptx.measuring BUNDLE."""

import sys

from tinygpu.ptx.measuring.worker import main

if __name__ == "__main__":
    sys.exit(main())
