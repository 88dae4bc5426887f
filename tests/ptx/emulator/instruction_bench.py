"""Runs a few PTX instructions per thread on arrays of inputs: the smallest kernel around what a test is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator import PtxSyntaxError, UnsupportedInstruction, emulate
from tinygpu.ptx.emulator.source.linking import read_modules

TARGETS = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
_STORAGE = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}
_REGISTER = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}


def module(body: str, parameters: Sequence[str], *, target: str = "", head: str = "") -> str:
    """A PTX module with one entry `k` around a body; parameters as in ".param .u64 p0".

    target  "" for the first on which every instruction of the body exists
    """
    for choice in () if target else TARGETS[:-1]:
        text = module(body, parameters, target=choice, head=head)
        try:
            read_modules((text,))
        except PtxSyntaxError as refused:
            if "but .target is" in refused.sentence:
                continue
        except UnsupportedInstruction:
            pass
        return text
    target = target or TARGETS[-1]
    return (
        f".version 8.5\n.target {target}\n.address_size 64\n{head}\n"
        f".visible .entry k({', '.join(parameters)})\n{{\n{body}\n}}\n"
    )


def run_instruction(
    text: str, inputs: Sequence[NDArray[Any]], outputs: Sequence[Any], *, declare: str = "", **options: Any
) -> list[NDArray[Any]]:
    """Run `text` with inputs in %a0, %a1, ... and results in %d0, %d1, ...; one thread per element.

    inputs   arrays of one length; a bool array arrives as a predicate %a
    outputs  NumPy types of the results; np.bool_ is a predicate
    """
    size = len(inputs[0]) if inputs else 32
    lines = [".reg .b32 %thr, %lin, %cta, %nt; .reg .b64 %at, %off;", declare]
    lines.append("mov.u32 %thr, %tid.x; mov.u32 %cta, %ctaid.x; mov.u32 %nt, %ntid.x;")
    lines.append("mad.lo.u32 %lin, %cta, %nt, %thr;")
    arrays: list[NDArray[Any]] = []
    for k, value in enumerate(inputs):
        predicate = value.dtype == np.bool_
        stored = value.astype(np.uint8) if predicate else np.ascontiguousarray(value)
        width = stored.dtype.itemsize
        arrays.append(stored)
        register = f"%w{k}" if predicate else f"%a{k}"
        lines.append(f".reg .{_REGISTER[width]} {register};")
        lines.append(f"ld.param.u64 %at, [p{k}]; mul.wide.u32 %off, %lin, {width}; add.u64 %at, %at, %off;")
        lines.append(f"ld.global.{_STORAGE[width]} {register}, [%at];")
        if predicate:
            lines.append(f".reg .pred %a{k}; setp.ne.u16 %a{k}, %w{k}, 0;")
    results: list[NDArray[Any]] = []
    for k, dtype in enumerate(outputs):
        predicate = np.dtype(dtype) == np.bool_
        width = 1 if predicate else np.dtype(dtype).itemsize
        lines.append(f".reg .pred %d{k}; .reg .b16 %v{k};" if predicate else f".reg .{_REGISTER[width]} %d{k};")
        results.append(np.zeros(size, np.uint8 if predicate else dtype))
    lines.append(text)
    for k, dtype in enumerate(outputs):
        predicate = np.dtype(dtype) == np.bool_
        width = 1 if predicate else np.dtype(dtype).itemsize
        register = f"%v{k}" if predicate else f"%d{k}"
        if predicate:
            lines.append(f"selp.u16 %v{k}, 1, 0, %d{k};")
        lines.append(f"ld.param.u64 %at, [p{len(inputs) + k}]; mul.wide.u32 %off, %lin, {width};")
        lines.append(f"add.u64 %at, %at, %off; st.global.{_STORAGE[width]} [%at], {register};")
    lines.append("ret;")
    parameters = [f".param .u64 p{k}" for k in range(len(inputs) + len(outputs))]
    block = min(size, 128)
    if size % block:
        raise ValueError("the number of elements must be at most 128, or a multiple of it")
    emulate(module("\n".join(lines), parameters), grid=size // block, block=block, args=[*arrays, *results], **options)
    return [r.astype(np.bool_) if np.dtype(t) == np.bool_ else r for r, t in zip(results, outputs, strict=True)]
