"""What keeps a program from being run to its end."""

from __future__ import annotations


class ProgramFault(ValueError):
    """A program that waits for ever, reads what nobody wrote, or was given what it cannot take; with the sentence."""


class NoMeaning(ProgramFault):
    """An instruction that does not say what it means."""
