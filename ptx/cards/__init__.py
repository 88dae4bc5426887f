"""Instruction cards: pages generated from the data that the solver uses, and the judges of their claims."""

from tinygpu.ptx.cards.collect import card, cards
from tinygpu.ptx.cards.judges import (
    complaint,
    refusal,
    refused_by_assembler,
    refused_by_emulator,
    refused_by_launch,
    refused_variants,
)
from tinygpu.ptx.cards.page import index, page

__all__ = [
    "card",
    "cards",
    "complaint",
    "index",
    "page",
    "refusal",
    "refused_by_assembler",
    "refused_by_emulator",
    "refused_by_launch",
    "refused_variants",
]
