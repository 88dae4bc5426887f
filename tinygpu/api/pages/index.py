"""All machines side by side, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tinygpu.api.machines import FAMILIES
from tinygpu.api.pages.account import DEVICES, Account
from tinygpu.api.pages.page import code, percent, plain, table

HEAD = """\
# Machines

Every machine that ships, side by side, and behind them the plans; the name leads to its page: what it is, what it
declares, its program, its space and what prunes it, where its time goes on four devices, layouts as pictures, and the
PTX of its smallest kernel. The pages are written by

```sh
python -m tinygpu.api.pages          # all of them; or NAME ... for some and their rows here; --check to compare
```

*Space*: the candidates that all constraints admit, for the sizes of the page, on the first device that runs the
machine. *Lines*: of its class, and of what it derives from in its file. The last columns are the share of the roofline
that the best candidate is *predicted* to reach; nothing was timed. A dash: the device lacks an instruction, or
has a better one. All machines have tiles in registers, beside the memories that are named.
"""


def index(names: Sequence[str], accounts: Sequence[Account], written: str = "") -> str:
    """The table of machines, in the order of `names`: rows of accounts, and for others those of an index `written`."""
    rows = {m[1]: m[0] for m in re.finditer(r"^\| \[(\w+)\]\(\1\.md\) \|.*$", written, re.MULTILINE)}
    rows |= {a.name: f"| {' | '.join(_row(a))} |" for a in accounts}
    header = ("machine", "operation", "instructions", "memories", "space", "lines", *map(str.upper, DEVICES))
    listed = "\n".join([table(header, [], right=range(4, len(header))), *(rows[n] for n in names if n in rows)])
    families = "\n".join(
        f"- {code(name)}: {', '.join(f'[{m}]({m}.md)' for m in members)}" for name, members in FAMILIES.items()
    )
    said = "Of a family every machine is searched that is legal, as `tinygpu tune matmul` does:"
    return "\n\n".join([HEAD.rstrip(), listed, said, families]) + "\n"


def _row(a: Account) -> tuple[str, ...]:
    shares = ("-" if d.point is None else percent(d.share) for d in a.devices[: len(DEVICES)])
    operation, _, _ = a.machine.summary().partition(": ")
    return (
        f"[{a.name}]({a.name}.md)",
        plain(operation),
        ", ".join(map(code, a.instructions)),
        " ".join(m for m in a.memories if m != "RMEM"),
        f"{a.first.space.size:,}",
        str(a.lines),
        *shares,
    )
