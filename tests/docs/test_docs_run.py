"""README.md, docs/tutorial.md, guide and language reference (and the Python of architecture.md): they run as shown.

A Python block that begins with `# file: NAME.py` is saved under that name, and the commands of the page work on it. A
block of output after a block of commands is compared line by line: `...` stands for lines that are left out, and
numbers may differ (times are predicted, and predictions get better); the slow test compares the numbers too.
"""

import ast
import doctest
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorial.md", "docs/guide.md", "docs/recipes.md", "docs/language.md")
WIDTH = 160


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: what follows the fence, the line where it begins, and its text."""

    info: str
    line: int
    text: str


@dataclass(frozen=True)
class Command:
    """One command of a page, the status it ends with, and what the page shows of its output (the block's last one).

    slow  takes so long that the quick suite leaves it out (the README's main job, which CI runs by itself)
    """

    page: str
    line: int
    words: tuple[str, ...]
    status: int
    shown: str
    slow: bool


@cache
def blocks(page: str) -> tuple[Block, ...]:
    source = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```$", source, re.MULTILINE | re.DOTALL)
    return tuple(Block(f[1].strip(), source.count("\n", 0, f.start()) + 1, f[2]) for f in found)


def file_of(block: Block) -> str:
    """The name under which a block is saved, or ''."""
    named = re.match(r"# file: (\S+\.py)\n", block.text)
    return named[1] if block.info == "python" and named else ""


def commands(page: str) -> Iterator[Command]:
    """The `tinygpu` commands of a page; what installs or tests is not run from a test."""
    listed = blocks(page)
    for place, block in enumerate(listed):
        language, *words = block.info.split()
        if language != "sh":
            continue
        following = listed[place + 1] if place + 1 < len(listed) else None
        shown = following.text if following is not None and following.info == "text" else ""
        lines = [line.split(" && ")[-1] for line in block.text.replace("\\\n", " ").splitlines()]
        lines = [line for line in lines if line.startswith("tinygpu ")]
        for number, line in enumerate(lines, 1):
            last = number == len(lines)
            status, printed = int("fails" in words), shown if last else ""
            yield Command(page, block.line, tuple(shlex.split(line)), status, printed, "slow" in words)


COMMANDS = [c for page in PAGES for c in commands(page)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Per page: a folder that holds the files which the page shows."""
    out = {}
    for page in PAGES:
        out[page] = tmp_path_factory.mktemp(Path(page).stem)
        for block in blocks(page):
            if file_of(block):
                (out[page] / file_of(block)).write_text(block.text)
    return out


def run(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, run in this process; its status is checked."""
    from tinygpu.cli import main, printing

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", list(command.words))
    monkeypatch.setattr(printing.console, "width", WIDTH)
    try:
        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    output = capsys.readouterr()
    assert status == command.status, output.out + output.err
    return output.out + output.err


def plain(line: str, numbers: bool) -> str:
    """A line without its spacing, and unless they count, without its numbers."""
    text = " ".join(line.split())
    return text if numbers else re.sub(r"\d[\d,.]*", "#", text)


def missing(shown: str, output: str, *, numbers: bool) -> list[str]:
    """Lines of the page that the output does not have, in the page's order."""
    rest = iter([plain(line, numbers) for line in output.splitlines()])
    wanted = [plain(line, numbers) for line in shown.splitlines() if line.strip() not in ("", "...")]
    return [line for line in wanted if not any(line == printed for printed in rest)]


def parameters(listed: list[Command]) -> list[Any]:
    """Commands as test parameters, named by where they stand; the quick suite runs those of the README."""

    def marks(c: Command) -> list[pytest.MarkDecorator]:
        return [pytest.mark.slow] * c.slow + [pytest.mark.end_to_end] * (c.page != "README.md")

    return [pytest.param(c, id=f"{c.page}:{c.line} {' '.join(c.words[1:3])}", marks=marks(c)) for c in listed]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", parameters(COMMANDS))
def test_a_command_does_what_its_page_shows(
    command: Command, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(command, folders[command.page], monkeypatch, capsys)
    assert missing(command.shown, output, numbers=False) == [], output


@pytest.mark.slow
@pytest.mark.parametrize("command", parameters([c for c in COMMANDS if c.shown]))
def test_a_command_prints_the_numbers_of_its_page(
    command: Command, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(command, folders[command.page], monkeypatch, capsys)
    assert missing(command.shown, output, numbers=True) == [], output


def test_a_line_that_is_not_printed_is_noticed() -> None:
    assert missing("a 1\n...\nb 2\n", "x\na 7\ny\nb 8\n", numbers=False) == []
    assert missing("a 1\nb 2\n", "a 1\nb 3\n", numbers=True) == ["b 2"]
    assert missing("b 2\na 1\n", "a 1\nb 2\n", numbers=False) == ["a #"]


@pytest.mark.end_to_end
@pytest.mark.parametrize("page", [*PAGES, "docs/architecture.md"])
def test_the_python_of_a_page_runs(page: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are one session, in which the files that it shows can be imported."""
    if page in folders:
        monkeypatch.chdir(folders[page])
        monkeypatch.syspath_prepend(str(folders[page]))
    for name in [Path(f).stem for block in blocks(page) if (f := file_of(block))]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    names: dict[str, object] = {"__name__": "page"}
    report: list[str] = []
    for block in blocks(page):
        if block.info != "python":
            continue
        if ">>>" in block.text:
            test = doctest.DocTestParser().get_doctest(block.text, names, page, page, block.line)
            doctest.DocTestRunner(verbose=False).run(test, out=report.append, clear_globs=False)
            names.update(test.globs)
        else:
            own = {"__name__": "page"} if file_of(block) else names
            exec(compile("\n" * block.line + block.text, page, "exec"), own)
    assert report == []


def machines_of(block: Block) -> Iterator[str]:
    """Names that a saved block gives to machines: classes on Machine, and what `elementwise` makes."""
    for node in ast.parse(block.text).body:
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "Machine" for base in node.bases):
            yield node.name
        made = node.value if isinstance(node, ast.Assign) else None
        if isinstance(made, ast.Call) and getattr(made.func, "id", "") == "elementwise":
            yield ast.unparse(node).split(" = ")[0]


@pytest.mark.parametrize("page", PAGES)
def test_every_machine_of_a_page_is_tuned_or_verified(page: str) -> None:
    shown = {f"{file_of(b)}:{name}" for b in blocks(page) if file_of(b) for name in machines_of(b)}
    proved = {c.words[2] for c in COMMANDS if c.page == page and c.words[1] in ("tune", "verify")}
    assert shown, f"{page} shows no machine"
    assert shown - proved == set()


def links(page: Path) -> Iterator[str]:
    """Relative links of a page, without those in its code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            yield target


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as they are made on the usual hosts."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", [*PAGES, "docs/architecture.md", "docs/index.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    broken = []
    for link in links(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
