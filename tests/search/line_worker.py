"""A worker without a GPU: reads the names in a bundle, "times" one after the other, and may be told to end early.

python line_worker.py BEHAVIOUR BUNDLE -o RESULTS --finals 0. A bundle is JSON: name -> seconds, or a failure's kind.
"""

import json
import os
import sys
import time
from pathlib import Path


def main() -> int:
    behaviour, bundle, _, out, *_ = sys.argv[1:]
    kernels = json.loads(Path(bundle).read_text())
    path = Path(out)
    if behaviour == "no gpu":
        print("worker: there is no GPU here", file=sys.stderr)
        return 1
    head = {"tinygpu_results": 1, "bundle": bundle, "title": "t", "device": "d", "date": "2026-03-01", "problems": [{}]}
    lines = path.read_text().splitlines() if path.exists() else []
    if lines and json.loads(lines[0])["bundle"] != bundle:
        print("worker: results of another bundle", file=sys.stderr)
        return 1
    done = {json.loads(line)["kernel"] for line in lines[1:]}
    first = next(value for value in kernels.values() if not isinstance(value, str))
    with open(path, "a") as file:

        def write(line: dict) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        if not lines:
            write(head | {"gpu": {"name": "G", "driver": "1"}})
        for count, (name, value) in enumerate(((n, v) for n, v in kernels.items() if n not in done), 1):
            with open(path.with_name("timed"), "a") as timed:
                print(name, value, file=timed, flush=True)
            time.sleep(0.02)
            same = {"kernel": name, "machine": "M", "point": {}, "question": 0, "digest": "", "predicted_s": 1.0}
            if isinstance(value, str):
                write(same | {"status": "failed", "failure": {"kind": value, "sentence": "so it was"}})
            else:
                # today's clock is slower than that of any other batch
                clock = 1.0 + 0.1 * len(kernels)
                spread = {"median": value * clock, "low": value * clock, "high": value * clock}
                more = {"status": "measured", "cold": spread, "warm": None, "verdict": "tie", "relative": value / first}
                write(same | more)
            if behaviour == "hangs":
                path.with_name("hanging").write_text(str(os.getpid()))
                time.sleep(1000)
            if behaviour == "ends after two" and count == 2:
                print("worker: lost its GPU", file=sys.stderr)
                return 1
            if behaviour == "ends at once":
                print("worker: cannot go on", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
