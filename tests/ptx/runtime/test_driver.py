"""The probe for a driver: every answer that a machine can give, none of which may raise or hang."""

import ctypes.util
import json
import subprocess
import sys

import pytest

from tinygpu.ptx.runtime.driver import DriverStatus, Gpu, available, probe

# a library that every machine has stands in for the driver's, and a program stands in for its answers
LIBRARY = ctypes.util.find_library("c") or ctypes.util.find_library("msvcrt") or ""


def answered(program: str, timeout_seconds: float = 60.0) -> DriverStatus:
    return probe(LIBRARY, program, timeout_seconds)


def test_no_driver_is_told_without_starting_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    status = probe("libnosuchdriver.so.1", "", 1.0)
    assert status == DriverStatus(False, "no CUDA driver: libnosuchdriver.so.1 is not installed")


def test_gpus_are_read() -> None:
    gpus = [
        {"ordinal": 0, "name": "NVIDIA H200", "compute_capability": [9, 0]},
        {"ordinal": 1, "name": "NVIDIA RTX PRO 6000", "compute_capability": [12, 0]},
    ]
    status = answered(f"print({json.dumps(json.dumps({'version': 12080, 'gpus': gpus}))})")
    assert status == DriverStatus(
        True,
        "CUDA driver 12.8 with NVIDIA H200, NVIDIA RTX PRO 6000",
        (Gpu(0, "NVIDIA H200", (9, 0)), Gpu(1, "NVIDIA RTX PRO 6000", (12, 0))),
    )
    assert [gpu.architecture for gpu in status.gpus] == ["sm_90", "sm_120"]


def test_a_driver_without_gpus_is_not_enough() -> None:
    status = answered("""print('{"version": 13000, "gpus": []}')""")
    assert status == DriverStatus(False, "CUDA driver 13.0 sees no GPU")


def test_a_driver_that_prints_lines_of_its_own_is_understood() -> None:
    status = answered("""print('hello'); print('{"version": 13000, "gpus": []}')""")
    assert status.reason == "CUDA driver 13.0 sees no GPU"
    assert answered("print('hello')") == DriverStatus(
        False, "asking the CUDA driver gave 'hello\\n' instead of an answer"
    )


def test_a_driver_that_refuses_is_told_with_its_own_words() -> None:
    status = answered("""print('{"error": "cuInit returned CUDA_ERROR_NO_DEVICE"}')""")
    assert status == DriverStatus(
        False, "the CUDA driver is installed but does not work: cuInit returned CUDA_ERROR_NO_DEVICE"
    )


@pytest.mark.end_to_end
def test_a_driver_that_hangs_is_left() -> None:
    status = answered("import time; time.sleep(600)", timeout_seconds=1)
    assert status == DriverStatus(False, "the CUDA driver did not answer within 1 s")


@pytest.mark.parametrize(
    ("program", "code", "why"),
    [
        ("import os; os.abort()", -6, "no message"),
        ("raise SystemError('bad driver')", 1, "SystemError: bad driver"),
        ("import no_such_wheel", 1, "ModuleNotFoundError: No module named 'no_such_wheel'"),
    ],
)
def test_a_driver_that_brings_its_process_down_costs_the_child(program: str, code: int, why: str) -> None:
    assert answered(program) == DriverStatus(False, f"asking the CUDA driver ended with code {code}: {why}")


def test_this_machine_answers_and_is_asked_once() -> None:
    status = available()
    assert status.present == bool(status.gpus)
    assert status.reason
    assert available() is status


def test_asking_loads_no_cuda_into_this_process() -> None:
    program = """
import sys
from tinygpu.ptx.runtime.driver import available
available()
print([name for name in sys.modules if name.startswith("cuda")])
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
