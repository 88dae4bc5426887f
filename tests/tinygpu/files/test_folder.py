"""A folder of ours: only our own files are replaced, all of them or none, and nothing else is touched."""

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tinygpu.api.output import of_a_run
from tinygpu.cli.app import app
from tinygpu.files import FileError
from tinygpu.files.folder import MANIFEST, check_folder, write_folder
from tinygpu.files.writing import write_file
from tinygpu.search.cache import Cache
from tinygpu.search.journal import Journal

NEW = {"kernel.ptx": "new\n", "launch.json": "{}\n"}
names = st.sampled_from(["kernel.ptx", "launch.json", "summary.txt", "run.json", "notes.txt"])
texts = st.dictionaries(names, st.text("ab\n", max_size=5), min_size=1, max_size=4)


def held(folder: Path) -> dict[str, str]:
    """Everything below a folder, hidden files and drafts included."""
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["ours", "ours", "theirs"]), texts), min_size=1, max_size=5))
def test_foreign_files_survive_and_ours_are_replaced_together(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, dict[str, str]]]
) -> None:
    """Against a model: who wrote each file that is there."""
    folder = tmp_path_factory.mktemp("folder") / "out"
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    for who, files in steps:
        if who == "theirs":
            folder.mkdir(exist_ok=True)
            for name, text in files.items():
                if name not in ours:
                    theirs[name] = text
                    (folder / name).write_text(text)
            continue
        before = held(folder) if folder.exists() else None
        allowed = (not theirs or (folder / MANIFEST).exists()) and not theirs.keys() & files.keys()
        try:
            write_folder(folder, files)
        except FileError:
            assert not allowed
            assert (held(folder) if folder.exists() else None) == before
            continue
        assert allowed
        ours = dict(files)
        assert {n: t for n, t in held(folder).items() if n != MANIFEST} == {**theirs, **ours}


SENTENCES = {
    "a folder of somebody else's": (
        "{folder} holds notes.txt and 1 more, and nothing says that tinygpu wrote it: it is left as it is; give a "
        "folder that is new or empty"
    ),
    "a file": "{folder} cannot be written to: Not a directory; give another folder",
    "a foreign file of one of our names": (
        "{folder}/kernel.ptx is not of what tinygpu wrote there, and would be replaced; move it, or give another folder"
    ),
    "a broken manifest": (
        "{folder}/" + MANIFEST + " does not say which files of the folder are ours: it holds {{'files': ['../x']}}; "
        "give another folder"
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_what_is_not_ours_is_refused_and_left_alone(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    if case == "a file":
        folder.write_text("x")
    elif case == "a folder of somebody else's":
        (folder / "src").mkdir(parents=True)
        (folder / "notes.txt").write_text("x")
    elif case == "a broken manifest":
        folder.mkdir()
        (folder / MANIFEST).write_text('{"files": ["../x"]}')
    else:
        write_folder(folder, {"launch.json": "1"})
        (folder / "kernel.ptx").write_text("theirs")
    before = held(tmp_path)
    for attempt in (lambda: check_folder(folder, tuple(NEW)), lambda: write_folder(folder, NEW)):
        with pytest.raises(FileError) as refused:
            attempt()
        assert str(refused.value) == SENTENCES[case].format(folder=folder)
        assert held(tmp_path) == before


def test_a_runs_own_journal_and_cache_survive_in_its_folder(tmp_path: Path) -> None:
    with Journal(tmp_path / "M.jsonl", {"seed": 1}), Cache(tmp_path / "cache"):
        kept = {p.name for p in tmp_path.iterdir()}
        write_folder(tmp_path, NEW, beside=of_a_run)
    assert {"M.jsonl", "cache"} <= kept
    (tmp_path / "more").write_text("x")
    write_folder(tmp_path, {"kernel.ptx": "2"}, beside=of_a_run)
    assert {"M.jsonl", "cache", "more", "kernel.ptx", MANIFEST} == {p.name for p in tmp_path.iterdir()}
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(FileError):
        write_folder(tmp_path, NEW, beside=of_a_run)


@pytest.mark.parametrize("command", [("emit", "axpby"), ("tune", "axpby"), ("tune", "axpby", "--measure", "3")])
def test_a_command_refuses_a_folder_of_somebody_else_before_it_begins(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    (tmp_path / "data").mkdir()
    before = held(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*command, "--shape", "n=300", "--device", "h200", "-o", "."])
    assert str(done.exception) == (
        ". holds data and 1 more, and nothing says that tinygpu wrote it: it is left as it is; give a folder that is "
        "new or empty"
    )
    assert held(tmp_path) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "thesis.tex"]


CALLS = ("mkdir", "replace", "fsync")


@pytest.mark.parametrize("there", [False, True])
def test_a_failure_at_any_step_leaves_everything_as_it_was(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full from the n-th call on, for every n until it is written."""
    folder = tmp_path / "a" / "out"
    if there:
        write_folder(folder, {"kernel.ptx": "old", "run.json": "old"})
        (folder / "journal").write_text("theirs")
    else:
        (tmp_path / "other").write_text("x")
    before = held(tmp_path)
    real = {name: getattr(os, name) for name in CALLS}
    for most in range(100):
        left = [most]

        def limited(name: str, left: list[int] = left) -> Any:
            def call(*arguments: Any, **more: Any) -> Any:
                left[0] -= 1
                if left[0] == -1:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real[name](*arguments, **more)

            return call

        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, limited(name))
            try:
                write_folder(folder, NEW)
                break
            except FileError as full:
                sentence = str(full)
        assert sentence == f"{folder} cannot be written to, and is as it was: No space left on device"
        assert held(tmp_path) == before
        assert (tmp_path / "a").exists() == there
    assert most > 5
    assert held(folder).items() >= NEW.items()
    assert "run.json" not in held(folder)


def test_a_file_that_does_not_fit_leaves_no_draft(tmp_path: Path) -> None:
    """The system's own limit of a file's size, in a process of its own."""
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tinygpu.files import FileError\n"
        "from tinygpu.files.folder import write_folder; from tinygpu.files.writing import write_file\n"
        "from tinygpu.files.lines import LineFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "here = Path(sys.argv[1])\n"
        "file = LineFile(here / 'lines', 'tinygpu_x', 'lines'); list(file.lines()); file.resume()\n"
        "file.write({'tinygpu_x': 1})\n"
        "for attempt in (lambda: write_folder(here / 'out', {'a': 'x', 'b': 'y' * 20_000}),\n"
        "    lambda: write_file(here / 'new' / 'b', 'y' * 20_000, (b'y',), 'a file'),\n"
        "    lambda: [file.write({'text': 'y' * 3_000}) for _ in range(9)]):\n"
        "    try: attempt()\n"
        "    except FileError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"{tmp_path}/out cannot be written to, and is as it was: File too large",
        f"{tmp_path}/new/b cannot be written: File too large",
        f"{tmp_path}/lines cannot be written to: File too large",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["lines"]
    lines = (tmp_path / "lines").read_bytes().split(b"\n")
    assert (len(lines), lines[-1]) == (5, b"")


def test_a_kill_leaves_a_folder_that_the_next_call_takes(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tinygpu.files.folder import write_folder\n"
        "n = 0\n"
        "while True:\n"
        "    n += 1; write_folder(Path(sys.argv[1]), {'a': str(n) * 5000, 'b': str(n)}); print(n, flush=True)\n"
    )
    folder = tmp_path / "out"
    draw = random.Random(1)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE)
        if process.stdout is None:
            raise RuntimeError("a process without output was started")
        for _ in range(draw.randrange(1, 30)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        (folder / "notes").write_text("theirs")
    write_folder(folder, NEW)
    assert {n: t for n, t in held(folder).items() if n != MANIFEST} == {**NEW, "notes": "theirs"}


@pytest.mark.parametrize("text", ["", "<svg old", "notes", "\x00\x01"])
def test_a_single_file_replaces_its_own_kind_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "drawing.svg"
    path.write_text(text)
    if text.startswith("<svg") or not text:
        write_file(path, "<svg new", (b"<svg ",), "a drawing")
        assert path.read_text() == "<svg new"
    else:
        with pytest.raises(FileError) as refused:
            write_file(path, "<svg new", (b"<svg ",), "a drawing")
        sentence = "is there and is not a drawing; it is left as it is: give another path, or remove it"
        assert str(refused.value) == f"{path} {sentence}"
        assert path.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["drawing.svg"]


