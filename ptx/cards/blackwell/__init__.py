"""Blackwell by hand, docs/blackwell.md, written from the data that cards, lowering and emulator use."""

from tinygpu.ptx.cards.blackwell.page import page

__all__ = ["page"]
