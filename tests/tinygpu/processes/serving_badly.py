"""Processes that do what they are told, mostly no good: each request says what, and a file for their children."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tinygpu.processes.serving import Line

SLEEP = "import time; time.sleep(1000)"


def serve(line: Line) -> None:
    for do, what, note in line:
        match do:
            case "answer":
                line.send(what)
            case "print":  # where answers go, if nobody takes care
                print(what, flush=True)
                os.write(1, b"\0" * 9)
                line.send(what)
            case "raise":
                raise RuntimeError(what)
            case "exit":
                os._exit(what)
            case "signal":
                faulthandler.disable()  # pytest would show where it stood
                os.kill(os.getpid(), what)
            case "hang":
                begun(note, subprocess.Popen([sys.executable, "-c", SLEEP]).pid)
                time.sleep(1000)
            case "close":
                line._answers.close()
                time.sleep(1000)
            case "litter":  # leaves a process of another session behind, which holds both pipes
                child = subprocess.Popen([sys.executable, "-c", SLEEP], close_fds=False, start_new_session=True)
                begun(note, child.pid)
                os._exit(what)


def begun(note: str, pid: int) -> None:
    place = Path(note)
    place.with_suffix(".new").write_text(str(pid))
    place.with_suffix(".new").rename(place)


if __name__ == "__main__":  # whoever asks, to be killed: a request without a limit
    from tinygpu.processes.worker import copied, started

    worker = started("serving_badly:serve") if sys.argv[1] == "started" else copied(serve)
    print(worker.process.pid, flush=True)
    if sys.argv[2]:
        worker.ask((sys.argv[2], 0, sys.argv[3]), 1000.0)
    signal.pause()
