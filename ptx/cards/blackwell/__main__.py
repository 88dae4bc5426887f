"""Writes docs/blackwell.md: python -m tinygpu.ptx.cards.blackwell [--check] [FILE]."""

from __future__ import annotations

import sys
from pathlib import Path

from tinygpu.ptx.cards.blackwell.page import page
from tinygpu.ptx.cards.generated import GeneratedPage
from tinygpu.ptx.cards.readings import counted

GENERATED = GeneratedPage("tinygpu.ptx.cards.blackwell", Path("docs/blackwell.md"), page, counted)

if __name__ == "__main__":
    sys.exit(GENERATED.main())
