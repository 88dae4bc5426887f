"""The verbs of `program`, and what is checked and kept while it is traced."""

from tinygpu.language.tracing.tracer import Tracer

__all__ = ["Tracer"]
