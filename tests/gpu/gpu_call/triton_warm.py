"""Compiles the Triton kernels of the table beforehand, into Triton's cache: python -m gpu_call.triton_warm PART PARTS.

What is compiled depends on which sizes are 1 or multiples of 16 and on which strides are 1, so that small operands give
the same kernels as large ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

SIZE = 512


def main(words: Sequence[str]) -> int:
    """Compiles every PARTS-th configuration from PART on; what a compiler refuses is told when it is timed."""
    import torch

    from gpu_call.triton_matmul import CONFIGURATIONS, configurations, launcher

    part, parts = int(words[0]), int(words[1])
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for config in CONFIGURATIONS[part::parts]:
        for m, columns in ((SIZE, False), (SIZE, True), (1, True)):
            # few rows take other configurations than many
            if config not in configurations(m) and config not in (configurations(64) if m > 1 else ()):
                continue
            a, b, c = (torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for shape in (
                (m, SIZE), (SIZE, SIZE), (m, SIZE)
            ))  # fmt: skip
            try:
                launcher(config, a, b.T if columns else b, c, sms)()
            except Exception as refused:
                print(f"{config}: {type(refused).__name__}: {refused}", flush=True)
    torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
