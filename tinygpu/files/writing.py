"""A file is written whole or not at all, and replaces nothing but its own kind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tinygpu.files.error import FileError


def check_replaceable(path: Path, begins: tuple[bytes, ...], what: str) -> None:
    """Raises FileError where there is something else than a file that begins as one of ours.

    begins  first bytes of files of this kind; an empty file may be replaced by any
    what    the kind, in words: "a bundle"
    """
    try:
        with open(path, "rb") as file:
            first = file.read(max(map(len, begins)))
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}; give another path") from None
    if first and not first.startswith(begins):
        raise FileError(f"{path} is there and is not {what}; it is left as it is: give another path, or remove it")


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it becomes `path` where the block ends without an exception, else it is gone.

    Folders that lead there are made, and taken away again where nothing comes of it. Raises FileError where the place
    cannot be written to.
    """
    try:
        made = make_folders(path.parent)
        draft: Path | None = None
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name[:60]}-", suffix=".draft", dir=path.parent)
            os.close(handle)
            draft = Path(name)
            yield draft
            draft.chmod(_mode(path))
            os.replace(draft, path)
        except BaseException:
            if draft is not None:
                draft.unlink(missing_ok=True)
            remove_folders(made)
            raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None


def write_file(path: str | Path, data: bytes | str, begins: tuple[bytes, ...], what: str) -> None:
    """Writes a file (see `check_replaceable`). Raises FileError, also where the place cannot be written to."""
    target = Path(path)
    check_replaceable(target, begins, what)
    with draft_of(target) as draft, open(draft, "wb") as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())  # some file systems say only now that they are full


def make_folders(folder: Path) -> list[Path]:
    """The folder and those that lead to it; those that were not there, innermost first."""
    missing: list[Path] = []
    at = folder
    while not at.exists() and at != at.parent:
        missing.append(at)
        at = at.parent
    made: list[Path] = []
    try:
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir()
                made.insert(0, each)
    except OSError:
        remove_folders(made)
        raise
    return made


def ready_folder(folder: Path) -> None:
    """Makes a folder that is not there. Raises FileError where it cannot be one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if folder.is_file() else error.strerror or str(error)
        raise FileError(f"{folder} cannot be a folder: {why}; give another") from None


def remove_folders(made: list[Path]) -> None:
    """Takes away folders that are still empty."""
    for folder in made:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _mode(path: Path) -> int:
    """Of the file that is replaced; else what a new file gets here."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


