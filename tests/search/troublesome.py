"""Objectives that do to their process what a candidate may do; made in processes of their own."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tinygpu.search import Evaluation, Point


def value_of(point: Point) -> float:
    return float(100 * int(point["a"]) + len(str(point.get("do", ""))))


class Doing:
    """Does what a point's "do" says; notes each point that it began with in `asked`."""

    def __init__(self, asked: str = "") -> None:
        self.asked = asked

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        (point,) = points
        if self.asked:
            with open(self.asked, "a") as file:
                print(point["a"], point.get("do", ""), file=file, flush=True)
        match point.get("do", "fine"):
            case "exit":
                os._exit(7)
            case "leave":
                sys.exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(1000)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise RuntimeError("no such luck")
            case "write":  # what looks like an answer, where answers went
                print('{"value": -1.0}', flush=True)
                os.write(1, b'{"value": -1.0}\n')
            case "close":
                os.closerange(3, 100)
            case "later":  # ends after it has answered
                threading.Timer(0.05, os._exit, [9]).start()
            case "litter":  # leaves a process behind that has everything of it open
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(20)
                    os._exit(0)
                os._exit(5)
            case "child":  # hangs in a process that it started
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
                if self.asked:
                    Path(self.asked + ".child").write_text(str(child.pid))
                child.wait()
            case "slow":
                time.sleep(0.2)
        return [Evaluation(value_of(point))]


class Broken:
    """Cannot be made."""

    def __init__(self) -> None:
        raise OSError("there is no GPU")


class Vanishing:
    """Ends its process while it is made."""

    def __init__(self) -> None:
        os._exit(11)


class Endless:
    """Is never made."""

    def __init__(self) -> None:
        time.sleep(1000)


class Meeting:
    """Waits until two processes have begun."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        (point,) = points
        (self.folder / str(point["a"])).touch()
        while len(list(self.folder.iterdir())) < 2:
            time.sleep(0.01)
        return [Evaluation(float(int(point["a"])))]
