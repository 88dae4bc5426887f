"""The report of a tuning run: one page that needs no network."""

from tinygpu.report.page import page
from tinygpu.report.run import NotARun, Run

__all__ = ["NotARun", "Run", "page"]
