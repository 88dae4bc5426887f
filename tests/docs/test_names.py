"""Names: the page is what the docstrings say, every name has a meaning, and no name has two."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
from name_table import doors, page

ROOT = Path(__file__).parents[2]
DOORS = doors()


def test_the_page_is_what_the_docstrings_say() -> None:
    written = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
    assert written == page(), "python tests/docs/name_table.py > docs/names.md"


@pytest.mark.parametrize("door", DOORS)
def test_every_name_has_a_meaning_of_its_own(door: str) -> None:
    names = DOORS[door]
    assert len(names) > 8
    assert [n.written for n in names if not n.meaning or not n.meaning.endswith((".", ")"))] == []
    twice = [meaning for meaning, count in Counter(n.meaning for n in names).items() if count > 1]
    assert twice == []


def test_no_name_stands_for_two_things() -> None:
    """A command and a call of the front door that have one name are one thing, and so are p.where and where of tiles;
    nothing else shares a name.
    """
    kinds = {door: {n.name for n in names} for door, names in DOORS.items()}
    front, commands, language, verbs = kinds.values()
    assert front & commands >= {"tune", "space", "explain", "check", "emit", "verify", "run", "predict", "emulate"}
    assert language & (front | commands) == set()
    assert verbs & (front | commands | language) == {"where"}
    for door, names in DOORS.items():
        assert [name for name, count in Counter(n.name for n in names).items() if count > 1] == [], door


# A word of the field that stood for something else here, and where it keeps the field's meaning.
TAKEN: dict[str, tuple[str, ...]] = {r"\bp\.gather\b": (), r"\.fill\(|\.drain\(|\bdrain\b": ()}


@pytest.mark.parametrize("word", TAKEN)
def test_words_of_the_field_mean_what_they_mean_there(word: str) -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "machines").glob("*.py"))]
    found = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in pages
        if page.relative_to(ROOT).as_posix() not in TAKEN[word]
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(word, line)
    ]
    assert found == []
