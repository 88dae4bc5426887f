"""The kernels of the tests that need a GPU, without one: they are what the tests take them for."""

import ast
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu_call.gpu_tests import files
from small_kernels import add_ptx

from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import EmulationFault, emulate

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


def texts() -> dict[str, str]:
    """Every PTX text that a module of those tests holds, and those that a test makes of `add_ptx` itself."""
    found = {}
    for file in files():
        module = importlib.import_module(file.stem)
        found |= {n: v for n, v in vars(module).items() if isinstance(v, str) and ".entry" in v}
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "add_ptx":
                text = eval(ast.unparse(node), {"add_ptx": add_ptx})
                found[f"{file.stem}, line {node.lineno}"] = text
    return found


TEXTS = texts()


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_kernel_of_the_gpu_tests_assembles(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink", reason="the CUDA wheels exist for Linux and Windows only")
    assert assemble(TEXTS[name], "sm_90").cubin.startswith(b"\x7fELF")


def test_there_are_kernels_to_judge() -> None:
    assert {"OUTSIDE", "ENDLESS"} <= set(TEXTS)


def arguments() -> list[object]:
    x = np.ones(64, dtype=np.float32)
    return [x, x.copy(), x.copy(), np.float32(1), np.uint32(64)]


def test_the_kernel_that_is_to_fault_writes_to_an_address_of_nobody() -> None:
    report = emulate(TEXTS["OUTSIDE"], grid=1, block=64, args=arguments(), check="collect")
    assert {f.kind for f in report.faults} == {"out of bounds"}


def test_the_kernel_that_is_to_hang_does_not_end() -> None:
    with pytest.raises(EmulationFault, match="no end after 1000 blocks"):
        emulate(TEXTS["ENDLESS"], grid=1, block=64, args=arguments(), step_limit=1000)
