"""The report of a tuning run: one page that needs no network."""

from tinygpu.report.page import page
from tinygpu.report.run import Run

__all__ = ["Run", "page"]
