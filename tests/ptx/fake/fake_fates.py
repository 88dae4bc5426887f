"""What befalls a kernel on a GPU that is not there, and how long it takes: comments in its PTX say so.

    // fake: us=120          it takes 120 us (its own default: 100)
    // fake: hang            it never ends
    // fake: exit 7          it brings the process down with code 7
    // fake: abort           it brings the process down by a signal
    // fake: error NAME      it ends with a fault of that name, and the context is lost

with `timed` behind one of the last four where that happens only when a graph runs it.
"""

from __future__ import annotations

import os
import re
import time

_FATE = re.compile(r"// fake: (hang|exit|abort|error)(?: (\w+))??( timed)?$", re.MULTILINE)
_TIME = re.compile(r"// fake: us=([\d.]+)")


def seconds_of(ptx: str) -> float:
    stated = _TIME.search(ptx)
    return float(stated[1]) * 1e-6 if stated else 1e-4


def befall(ptx: str, *, timed: bool) -> str:
    """Carries out what is said of a launch, or of one that a graph runs; the name of its fault, if it has one."""
    fate = _FATE.search(ptx)
    if fate is None or bool(fate[3]) != timed:
        return ""
    if fate[1] == "hang":
        time.sleep(3600)
    elif fate[1] == "exit":
        os._exit(int(fate[2]))
    elif fate[1] == "abort":
        os.abort()
    else:
        return fate[2]
    return ""
