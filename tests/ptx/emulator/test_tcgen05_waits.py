"""Registers that tcgen05.ld fills are used after tcgen05.wait::ld only: an advisory at every site that does not."""

from __future__ import annotations

import numpy as np
import pytest
from test_tcgen05_known_bad import CORPUS, run

from tinygpu.ptx.emulator import ORDERS, Order

WAIT = "tcgen05.wait::ld.sync.aligned;"
RULE = "tcgen05.ld without its wait"
KERNELS = [bug for bug in CORPUS if WAIT in bug.text(False)]


@pytest.mark.parametrize("order", ORDERS)
def test_use_before_the_wait_is_advised(order: Order) -> None:
    bug = KERNELS[0]
    right = run(bug.text(False), {"order": order})
    assert right.advisories == ()
    wrong = run(bug.text(False).replace(WAIT, ""), {"order": order, "check": "collect"})
    advised = {advisory.line: advisory for advisory in wrong.advisories if advisory.rule == RULE}
    text = bug.text(False).split("\n")
    loads = [n for n, line in enumerate(text, 1) if line.startswith("tcgen05.ld")]
    assert advised
    for line, advisory in advised.items():
        assert "tcgen05.ld" not in text[line - 1]
        assert any(f"`tcgen05.ld` on line {n} fills, before tcgen05.wait::ld" in advisory.sentence for n in loads)


@pytest.mark.parametrize("use", ["add.u32 {r}, {r}, 0;", "mov.u32 {r}, 0;"])
@pytest.mark.parametrize("seed", range(3))
def test_each_site_is_named(seed: int, use: str) -> None:
    """An instruction that uses or overwrites one of the registers is put before a wait: it alone is advised."""
    bug = KERNELS[int(np.random.default_rng(seed).integers(len(KERNELS)))]
    text = bug.text(False)
    at = text.index(WAIT)
    load = text.rindex("tcgen05.ld", 0, at)
    register = text[load:at].split("{")[1].split(",")[0].split("}")[0].strip()
    planted = text[:at] + use.replace("{r}", register) + " " + text[at:]
    report = run(planted, {"check": "collect"})
    line = planted[:at].count("\n") + 1
    assert [a.line for a in report.advisories if a.rule == RULE] == [line]
