"""Pages of machines: every machine that ships has one, and it is what the command writes.

The quick suite looks at what a class says by itself, on every page, and at some whole pages; all of them:

    pytest -m slow tests/docs/test_machine_pages.py
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tinygpu.api.pages.__main__ import COMMAND, WRITTEN, differences, main, pages, strangers
from tinygpu.api.pages.account import BESIDE, Account
from tinygpu.api.pages.page import head
from tinygpu.api.pages.typical import SIZES
from tinygpu.devices import device

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "machines"
# What is made whole in the quick suite: some of the cheapest.
CHEAP = ("bias_relu", "histogram")
SECTIONS = ["Declaration", "Program", "Space", "Roofline", "Layouts", "Smallest kernel"]


def text(name: str) -> str:
    path = FOLDER / f"{name}.md"
    assert path.is_file(), f"{path.relative_to(ROOT)} is missing; run {COMMAND}"
    return path.read_text(encoding="utf-8")


def test_every_machine_that_ships_has_a_page_and_no_other_has() -> None:
    for name in (*WRITTEN, "README"):
        text(name)
    assert strangers(FOLDER) == [], f"pages of no machine; run {COMMAND}"
    assert SIZES.keys() <= set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_says_what_the_class_says(name: str) -> None:
    wanted = head(Account.of(name)).rstrip()
    assert text(name).startswith(wanted), f"docs/machines/{name}.md is not what the class says; run {COMMAND} {name}"


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in CHEAP else pytest.mark.slow) for name in WRITTEN]
)
def test_pages_are_what_the_command_writes(name: str) -> None:
    assert differences(FOLDER, pages([name], FOLDER)) == [], f"run {COMMAND} {name}"


@pytest.mark.parametrize("name", WRITTEN)
def test_what_constraints_remove_adds_up_to_what_is_left(name: str) -> None:
    page = text(name)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    all_points, left = re.search(r"([\d,]+) points in .* \*\*([\d,]+) candidates\*\*", page).groups()
    rows = re.findall(r"^\| .* \| (?:legality|dominance) \| .* \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    there = int(all_points.replace(",", ""))
    for removed, after in rows:
        there -= int(removed.replace(",", ""))
        assert there == int(after.replace(",", ""))
    assert there == int(left.replace(",", "")) > 0


def test_the_readme_names_every_machine_once_and_no_other() -> None:
    named = re.findall(r"\[(\w+)\]\(docs/machines/(\w+)\.md\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    listed = [shown for shown, page in named if page != "README"]
    assert sorted(listed) == sorted(WRITTEN)
    assert all(shown == page for shown, page in named if page != "README")


def test_the_index_has_a_row_for_every_machine_with_the_figures_of_its_page() -> None:
    rows = {m[1]: m[0] for m in re.finditer(r"^\| \[(\w+)\]\(\1\.md\) \|.*$", text("README"), re.MULTILINE)}
    assert list(rows) == list(WRITTEN), f"run {COMMAND}"
    for name, row in rows.items():
        page = text(name)
        left = re.search(r"\*\*([\d,]+) candidates\*\*", page)
        assert left is not None
        assert f"| {left[1]} |" in row, f"run {COMMAND}"
        found = re.findall(r"^\| (\S+) \| .* \| `[█░]+`&nbsp;(\d+&nbsp;%) \|", page, re.MULTILINE)
        beside = device(BESIDE).name  # of machines that none of the devices of the index runs, on their page alone
        shares = [share for name, share in found if name != beside]
        assert [cell for cell in row.strip("| ").split(" | ")[-4:] if cell != "-"] == shares, f"run {COMMAND}"


@pytest.mark.parametrize("name", ["README", *WRITTEN])
def test_links_lead_somewhere(name: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", text(name), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"(?:\]\(|href=\")([^)#\"]+)", prose):
        assert (FOLDER / target).exists(), target


@pytest.mark.parametrize("name", WRITTEN)
def test_a_drawing_has_the_devices_and_the_times_of_its_page(name: str) -> None:
    """A line, a dot and a row of text for each device that has candidates."""
    rows = re.findall(r"^\| (\S+) \| [\d,]+ \| [\d,.]+&nbsp;us \| ([\d,.]+)&nbsp;us \|", text(name), re.MULTILINE)
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(FOLDER / f"{name}.svg").getroot()
    dots = [d.find(f"{svg}title").text for d in root.iter(f"{svg}circle") if d.attrib["r"] == "6"]
    assert [told.partition(",")[0] for told in dots] == [device for device, _ in rows], f"run {COMMAND} {name}"
    for told, (_, us) in zip(dots, rows, strict=True):
        shown = float(told.rpartition(": ")[2].removesuffix(" us").replace(",", ""))
        assert shown == pytest.approx(float(us.replace(",", "")), rel=1e-2, abs=0.06), f"run {COMMAND} {name}"
    assert {"s0 thick", *(f"s{i} thick" for i in range(len(rows)))} == {
        line.attrib["class"] for line in root.iter(f"{svg}line") if line.attrib["class"] != "grid"
    }


@pytest.mark.end_to_end
def test_what_is_wrong_is_told_with_the_command_that_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "axpby.md"
    wanted = {"axpby.md": "as it is made\n"}
    assert differences(tmp_path, wanted) == [f"{page} is missing"]
    page.write_text("as it was made\n", encoding="utf-8")
    assert differences(tmp_path, wanted) == [f"{page} is not what the machine says"]
    assert main(["axpby", "--check", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path}/README.md is missing; run {COMMAND}",
        f"{page} is not what the machine says; run {COMMAND}",
        f"{tmp_path}/axpby.svg is missing; run {COMMAND}",
    ]
    rows = text("README").replace("| [axpby](axpby.md) |", "| [axpby](axpby.md) | of old |")
    (tmp_path / "README.md").write_text(rows, encoding="utf-8")
    assert main(["axpby", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"2 pages in {tmp_path}\n"
    assert (tmp_path / "axpby.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert page.read_text(encoding="utf-8") == text("axpby")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == text("README")
    stray = [tmp_path / "sofmax.md", tmp_path / "sofmax.svg"]
    for path in stray:
        path.write_text("", encoding="utf-8")
    assert strangers(tmp_path) == stray


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["sofmax"])
    assert refused.value.code == 2
    listed = ", ".join(WRITTEN)
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"{COMMAND}: error: there is no machine 'sofmax' that ships; there are {listed}"
    )
