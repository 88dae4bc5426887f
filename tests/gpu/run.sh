#!/bin/sh
# One call on a machine with a GPU: tests/gpu/run.sh OUT_FOLDER [--minutes 9] [--only STEP] [--kit FILE].
# The kit comes from tests/gpu/prepare.py, on any machine; see docs/measuring.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 exec "${PYTHON:-python3}" -P -m gpu_call.run "$@"
