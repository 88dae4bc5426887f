"""The command line; `main` is its entry point."""

from tinygpu.cli.app import main

__all__ = ["main"]
