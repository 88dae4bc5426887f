"""Launches one kernel of a bundle, for a profiler or a sanitizer to look at.

    python -m gpu_call.one_kernel BUNDLE KERNEL
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpu_call.step import REAL
from tinygpu.ptx.measuring.bundle import read_bundle
from tinygpu.ptx.measuring.subject import Subject
from tinygpu.ptx.runtime.calls import load_driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.loaded import load_kernel


def main(words: Sequence[str] | None = None) -> int:
    """0 where the result is right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("kernel")
    parser.add_argument("--driver", default=REAL)
    given = parser.parse_args(words)
    bundle = read_bundle(given.bundle)
    entry = next(e for e in bundle.entries if e.name == given.kernel)
    context = open_context(load_driver(given.driver))
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(context, bundle.questions[entry.question], 0, Path(folder))
        kernel = load_kernel(context, entry.launch, bundle.ptx(entry), bundle.cubin(entry))
        sentence = subject.verify(kernel)
    print(json.dumps({"wrong": sentence, "ctas": kernel.grid, "registers": kernel.registers}))
    return int(bool(sentence))


if __name__ == "__main__":
    sys.exit(main())
