"""A folder of ours: which files in it are ours stands in a manifest, and no other file in it is ever touched.

Files are replaced together. All new ones are written to a folder of drafts inside first, where a full disk shows; then
they change places with the old ones, and where one of these moves fails, those before it are taken back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tinygpu.files.error import FileError, excerpt
from tinygpu.files.json_text import dumped, parse
from tinygpu.files.reading import read_file
from tinygpu.files.writing import make_folders, remove_folders

MANIFEST = ".tinygpu-files.json"
_KEY = "tinygpu_files"
_DRAFTS = ".tinygpu-drafts-"
_MANIFEST_BYTES = 2**16


def check_folder(folder: Path, names: tuple[str, ...], beside: Callable[[Path], bool] = lambda path: False) -> None:
    """Raises FileError where files of these names may not be written to a folder.

    They may where it is not there, holds nothing, or has a manifest of ours, and none of them would replace a file that
    is not in the manifest.

    beside  files that may lie in a folder without a manifest: a run's own journal, which was there first
    """
    _ours(folder, names, beside)


def write_folder(
    folder: Path,
    files: Mapping[str, str],
    *,
    beside: Callable[[Path], bool] = lambda path: False,
    keep: bool = False,
) -> tuple[Path, ...]:
    """Writes all of the files, or none. Returns their paths.

    Raises FileError as `check_folder` does, and where the place cannot be written to.

    keep  files of ours of an earlier call that are not among these stay; else they are removed
    """
    before = _ours(folder, tuple(files), beside)
    try:
        made = make_folders(folder)
        try:
            _write(folder, files, before, keep)
        except BaseException:
            remove_folders(made)
            raise
    except OSError as error:
        raise FileError(f"{folder} cannot be written to, and is as it was: {error.strerror or error}") from None
    return tuple(folder / name for name in files)


def _ours(folder: Path, names: tuple[str, ...], beside: Callable[[Path], bool]) -> frozenset[str]:
    """The names of our files that are in the folder."""
    try:
        found = {entry.name for entry in os.scandir(folder) if not entry.name.startswith(_DRAFTS)}
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise FileError(f"{folder} cannot be written to: {error.strerror}; give another folder") from None
    if MANIFEST in found:
        ours = _manifest(folder / MANIFEST)
    else:
        ours = frozenset()
        foreign = {name for name in found if not beside(folder / name)}
        if foreign:
            raise FileError(
                f"{folder} holds {_listed(foreign)}, and nothing says that tinygpu wrote it: it is left as it is; give "
                "a folder that is new or empty"
            )
    replaced = sorted((found & {*names}) - ours - {MANIFEST})
    if replaced:
        raise FileError(
            f"{folder / replaced[0]} is not of what tinygpu wrote there, and would be replaced; move it, or give "
            "another folder"
        )
    return ours & found


def _write(folder: Path, files: Mapping[str, str], before: frozenset[str], keep: bool) -> None:
    _clear_drafts(folder)
    drafts = Path(tempfile.mkdtemp(prefix=f"{_DRAFTS}{os.getpid()}-", dir=folder))
    try:
        new, old = drafts / "new", drafts / "old"
        new.mkdir()
        old.mkdir()
        listed = {*files, *(before if keep else ())}
        # the manifest changes places first: whatever of the new files is there is ours from then on
        texts = {MANIFEST: dumped({_KEY: 1, "files": sorted(listed)}) + "\n", **files}
        for name, text in texts.items():
            with open(new / name, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # some file systems say only now that they are full
        _change_places(folder, new, old, list(texts), () if keep else tuple(before - {*files}))
    finally:
        shutil.rmtree(drafts, ignore_errors=True)


def _change_places(folder: Path, new: Path, old: Path, names: list[str], removed: tuple[str, ...]) -> None:
    """New files come and old ones go, all of them or none."""
    done: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        os.replace(source, target)
        done.append((source, target))

    try:
        for name in (*names, *removed):
            if os.path.lexists(folder / name):
                move(folder / name, old / name)
            if name in names:
                move(new / name, folder / name)
    except BaseException:
        for source, target in reversed(done):
            with contextlib.suppress(OSError):
                os.replace(target, source)
        raise


def _manifest(path: Path) -> frozenset[str]:
    data = parse(read_file(path, _MANIFEST_BYTES), str(path))
    names = data.get("files") if isinstance(data, dict) and data.get(_KEY) == 1 else None
    if not isinstance(names, list) or not all(isinstance(n, str) and _plain(n) for n in names):
        raise FileError(
            f"{path} does not say which files of the folder are ours: it holds {excerpt(data)}; give another folder"
        )
    return frozenset(names)


def _plain(name: str) -> bool:
    """A name in the folder itself, whatever the manifest says."""
    return name not in ("", ".", "..", MANIFEST) and not {"/", "\\", "\0"} & set(name)


def _clear_drafts(folder: Path) -> None:
    """What a call that was killed left behind."""
    for drafts in folder.glob(f"{_DRAFTS}*"):
        owner = drafts.name.removeprefix(_DRAFTS).partition("-")[0]
        if not (owner.isdigit() and _runs(int(owner))):
            _restore(folder, drafts)
            shutil.rmtree(drafts, ignore_errors=True)


def _restore(folder: Path, drafts: Path) -> None:
    """Files of ours that had left their places when a call was killed, and whose new ones had not come."""
    for kept in (drafts / "old").glob("*"):
        if not (folder / kept.name).exists():
            with contextlib.suppress(OSError):
                os.replace(kept, folder / kept.name)


def _runs(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _listed(names: set[str]) -> str:
    first, *others = sorted(names)
    return f"{first} and {len(others):,} more" if others else first
