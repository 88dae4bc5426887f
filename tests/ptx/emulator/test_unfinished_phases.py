"""An mbarrier that a kernel leaves in the middle of a phase is told of at the end."""

from __future__ import annotations

import pytest

from tinygpu.ptx.emulator import emulate

HEAD = """
.version 8.0
.target sm_90
.address_size 64
"""


@pytest.mark.parametrize(
    ("arrivals", "bytes_expected", "left"),
    [
        (0, 0, None),
        (1, 0, "1 of 2 arrivals"),
        (2, 0, None),
        (3, 0, "1 of 2 arrivals"),
        (4, 0, None),
        (1, 16, "1 of 2 arrivals and waits for 16 more transaction bytes"),
    ],
)
def test_an_mbarrier_in_the_middle_of_a_phase_is_told_of_at_the_end(
    arrivals: int, bytes_expected: int, left: str | None
) -> None:
    expect = f"mbarrier.expect_tx.shared::cta.b64 [bar], {bytes_expected};" if bytes_expected else ""
    body = "mbarrier.arrive.shared::cta.b64 _, [bar];\n" * arrivals
    text = f".shared .align 8 .b64 bar;\nmbarrier.init.shared::cta.b64 [bar], 2;\n{expect}{body}ret;"
    report = emulate(HEAD + f".visible .entry k() {{ {text} }}", grid=1, block=1, args=[])
    said = f"mbarrier 0x400 (initialised on line 6) has {arrivals // 2} completed phases, {left}"
    assert report.unfinished == ((said,) if left else ())
