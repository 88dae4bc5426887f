"""Everything that synchronises in a kernel's text, taken away line by line; of atomics their order is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptx_edits import Edit

WAIT = re.compile(r"mbarrier\.(try|test)_wait")
OTHERS = re.compile(
    r"(@!?%p\d+ )?(mbarrier\.arrive|tcgen05\.(fence|commit|wait)|fence\.|bar\.(warp\.)?sync|barrier\.cluster\."
    r"|cp\.async\.bulk\.(commit_group|wait_group))"
)


def without_each(ptx: str) -> Iterator[Edit]:
    """The kernel without each wait (and its retry), arrival, commit, fence and barrier, and without the order of each
    atomic that releases and acquires, one at a time.
    """
    lines = ptx.split("\n")
    for number, line in enumerate(lines):
        statement = line.strip()
        if ".acq_rel." in statement:
            relaxed = line.replace(".acq_rel.", ".relaxed.")
            yield Edit(statement, relaxed.strip(), "\n".join([*lines[:number], relaxed, *lines[number + 1 :]]))
            continue
        if WAIT.search(statement):
            count = 2
        elif OTHERS.match(statement):
            # The halves of a cluster's barrier go together: a wait alone is refused before anything runs.
            count = 2 if statement.startswith("barrier.cluster.arrive") else 1
            if statement.startswith("barrier.cluster.wait"):
                continue
        else:
            continue
        gone = lines[number : number + count]
        yield Edit(" ".join(s.strip() for s in gone), "", "\n".join(lines[:number] + lines[number + count :]))
