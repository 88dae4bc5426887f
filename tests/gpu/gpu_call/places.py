"""What leaves the machine says nothing of it but its GPU and its software: folders and the host's name are replaced."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

# A host's name that may be a word of ours would be taken out of sentences.
_LEAST_HOST = 6


class Places:
    """Folders and a host, with what stands for each in every text that is written.

    folders  {"/home/someone/checkout": "CHECKOUT"}
    host     "" where its name is no secret
    """

    def __init__(self, folders: Mapping[str, str], host: str = "") -> None:
        # a folder within another one first
        self._folders = sorted(((k, v) for k, v in folders.items() if len(k) > 1), key=lambda pair: -len(pair[0]))
        self._host = re.compile(rf"\b{re.escape(host)}\b") if len(host) >= _LEAST_HOST else None

    def plain(self, text: str) -> str:
        """The text without them.

        >>> Places({"/home/me": "HOME", "/home/me/a": "CHECKOUT"}).plain("/home/me/a/b.py of /home/me/c")
        'CHECKOUT/b.py of HOME/c'
        """
        for place, name in self._folders:
            text = text.replace(place, name)
        return text if self._host is None else self._host.sub("HOST", text)


def places_of(checkout: Path, work: Path, out: Path) -> Places:
    """Those of a call: its checkout, its temporary folder, that of its results, Python's, the user's; and the host."""
    folders = {}
    for place, name in (
        (Path.home(), "HOME"), (Path(sys.base_prefix), "PYTHON"), (Path(sys.prefix), "PYTHON"), (out, "RESULTS"),
        (checkout, "CHECKOUT"), (work, "CALL"),
    ):  # fmt: skip
        for spelled in (place.absolute(), place.resolve()):
            folders[str(spelled)] = name
    host = socket.gethostname()
    return Places(folders, "" if host == "localhost" else host)
