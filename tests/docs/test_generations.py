"""docs/generations.md: its excerpts stand in every machine that they name, and its links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "generations.md").read_text(encoding="utf-8")


def excerpts() -> Iterator[tuple[str, str]]:
    """(machine, lines without a gap) for every block and every machine that it names."""
    for names, block in re.findall(r"^```python in=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for name in names.split(","):
            for lines in block.split("...\n"):
                yield name, lines


def bare(text: str) -> str:
    """Its lines without what indents them, and without what ends an element of a list."""
    return "\n".join(line.strip().rstrip(",") for line in text.splitlines())


@pytest.mark.parametrize(("name", "lines"), list(excerpts()))
def test_an_excerpt_stands_in_the_machine(name: str, lines: str) -> None:
    assert bare(lines) in bare((ROOT / "machines" / f"{name}.py").read_text(encoding="utf-8"))


def test_every_block_of_the_page_names_its_machines() -> None:
    assert PAGE.count("```python") == PAGE.count("```python in=") == len(re.findall("^```$", PAGE, re.MULTILINE))
    assert len(list(excerpts())) > 15


def test_links_lead_somewhere() -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGE)]
    assert links
    assert all((ROOT / "docs" / link).exists() for link in links)


def test_an_excerpt_that_is_altered_is_found() -> None:
    name, lines = next(e for e in excerpts() if "p.clear" in e[1])
    wrong = lines.replace("p.clear", "p.full")
    with pytest.raises(AssertionError):
        test_an_excerpt_stands_in_the_machine(name, wrong)
