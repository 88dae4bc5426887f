"""An objective that notes what it begins and what it ends in a file, for searches that are killed."""

import os
import time
from collections.abc import Sequence

from tinygpu.search import Evaluation, Point


class Noting:
    def __init__(self, path: str) -> None:
        # one write per line: several processes share the file
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        found = []
        for point in points:
            a, b = int(point["a"]), int(point["b"])
            os.write(self._file, f"begun {a} {b}\n".encode())
            time.sleep(0.004)
            found.append(Evaluation(float((a - 5) ** 2 + (b - 7) ** 2)))
            os.write(self._file, f"ended {a} {b}\n".encode())
        return found
