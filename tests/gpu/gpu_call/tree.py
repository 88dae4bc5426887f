"""The package as one folder, from a checkout: where nothing can be installed, this is put on the path."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path


def lay_out(root: Path, site: Path) -> int:
    """Copies the rooms of a checkout to where the import names say, below `site`; the number of files.

    Which folder is which package stands in pyproject.toml, so that this is what a wheel would hold.
    """
    tools = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders: dict[str, str] = tools["package-dir"]
    data: dict[str, list[str]] = tools.get("package-data", {})
    count = 0
    for package in tools["packages"]:
        # the longest prefix wins: tinygpu.ptx.runtime lies in the folder of tinygpu.ptx
        prefix = max((p for p in folders if package == p or package.startswith(p + ".")), key=len)
        source = root / folders[prefix] / Path(*package[len(prefix) :].strip(".").split("."))
        target = site / Path(*package.split("."))
        target.mkdir(parents=True, exist_ok=True)
        for pattern in ("*.py", *data.get(package, [])):
            for file in sorted(source.glob(pattern)):
                shutil.copyfile(file, target / file.name)
                count += 1
    return count
