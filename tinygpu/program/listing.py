"""Statements as text, one line each, as they say it themselves."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.program.statement import Statement


def listing(body: tuple[Statement, ...], indent: str, turns: frozenset[str]) -> Iterator[str]:
    """One line per statement, what stands inside one indented further; `turns` are the pipelines without buffers."""
    for s in body:
        yield f"{indent}{s.headline(turns)}"
        for inner in s.children:
            if inner.headline:
                yield f"{indent}  {inner.headline}"
            yield from listing(inner.statements, indent + ("    " if inner.headline else "  "), turns)
