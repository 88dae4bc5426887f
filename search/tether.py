"""Runs a command that ends with whoever started it, even when that was killed: it lives as long as the standard input.

    python -m tinygpu.search.tether COMMAND ...
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading


def main() -> None:
    """Ends as the command does; kills it once the input has ended."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def watch() -> None:
        sys.stdin.buffer.read()
        process.kill()

    threading.Thread(target=watch, daemon=True).start()
    code = process.wait()
    # not sys.exit: that would wait for the thread, which waits for the input
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
