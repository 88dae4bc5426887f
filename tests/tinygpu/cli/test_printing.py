"""What a terminal shows of a user's words: all of it, brackets included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.cli.printing import console, table

words = st.text(st.sampled_from("ab[]/ ij,=0"), min_size=1, max_size=12).filter(lambda w: w.strip() and "bold" not in w)


@given(words)
def test_brackets_of_a_user_are_printed(text: str) -> None:
    with console.capture() as said:
        console.print(f"[bold]y[/bold] {text}")
    assert said.get() == f"y {text}\n"
    rows = table("name", "what")
    rows.add_row("a", text)
    with console.capture() as said:
        console.print(rows)
    assert said.get().splitlines()[1].rstrip() == f"a     {text}".rstrip()


@pytest.mark.parametrize("text", ["y[i, j] = x[j, i]", "[red]", "[/red]", "a[bold", "[i] [/i]"])
def test_what_looks_like_a_tag_is_text(text: str) -> None:
    with console.capture() as said:
        console.print(text)
    assert said.get() == f"{text}\n"
