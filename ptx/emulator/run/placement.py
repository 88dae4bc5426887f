"""Where the variables of a module lie, their initial values, and the constants of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import LaunchError, PtxSyntaxError
from tinygpu.ptx.emulator.instructions.binder import Binder, Symbol, generic_base
from tinygpu.ptx.emulator.run.arguments import Parameters
from tinygpu.ptx.emulator.source.inlining import FlatCode
from tinygpu.ptx.emulator.source.syntax import Function, Module, SpecialOperand, SymbolOperand, Variable
from tinygpu.ptx.emulator.state.buffers import memory_bytes
from tinygpu.ptx.emulator.state.emulation import Launch
from tinygpu.ptx.emulator.state.layout import SHARED_BASE, SpaceLayout
from tinygpu.ptx.emulator.state.memory import CONST_WINDOW, PARAM_WINDOW, Allocation, GlobalMemory, Window

# Largest shared memory of any CTA (sm_90, sm_100: 227 KB, CUDA C++ Programming Guide, "Technical Specifications").
_MAX_SHARED_BYTES = 232448
# A size and the word of the barrier.
_GRID_WORKSPACE_BYTES = 8


def make_binder(
    module: Module,
    function: Function,
    code: FlatCode,
    parameters: Parameters,
    launch: Launch,
    memory: GlobalMemory,
    written: Mapping[str, NDArray[Any]],
) -> Binder:
    """Lay out every variable that the kernel can see, and enter initialised ones into memory.

    written  what the host has written into variables of the module since
    """
    shared = SpaceLayout("shared", SHARED_BASE)
    local = SpaceLayout("local", 0, 16)
    binder = Binder({}, len(parameters.data), _constants(launch), shared, local, cluster_size=launch.cluster_size)
    for key, offset in parameters.offsets.items():
        size = next(p.size_bytes for p in function.parameters if p.key == key)
        binder.symbols[key] = Symbol("param", offset, size)
    dynamic: list[Variable] = []
    device: list[Variable] = []
    const_layout = SpaceLayout("const", 0)
    used = _used_symbols(code)
    for name, address in code.addresses.items():
        binder.symbols[name] = Symbol("global", address, 0)
    inside = [(variable, False) for variable in module.variables] + [(variable, True) for variable in code.variables]
    for variable, own in inside:
        if own and variable.key in binder.symbols:
            continue
        if variable.space == "shared":
            if variable.extern:
                dynamic.append(variable)
            elif own or variable.key in used:
                address = shared.place(variable.key, variable.size_bytes, variable.align_bytes)
                binder.symbols[variable.key] = Symbol("shared", address, variable.size_bytes)
        elif variable.space in ("local", "param"):
            address = local.place(variable.key, variable.size_bytes, variable.align_bytes)
            binder.symbols[variable.key] = Symbol("local", address, variable.size_bytes)
        elif variable.space == "const":
            address = const_layout.place(variable.key, variable.size_bytes, variable.align_bytes)
            binder.symbols[variable.key] = Symbol("const", address, variable.size_bytes)
            device.append(variable)
        elif variable.space == "global":
            if variable.extern:
                raise LaunchError(f"{variable.name} is declared .extern .global, but no module defines it")
            address = memory.place(variable.size_bytes)
            binder.symbols[variable.key] = Symbol("global", address, variable.size_bytes)
            device.append(variable)
    _place_dynamic(dynamic, shared, launch, binder)
    _place_grid_workspace(code, binder, memory)
    binder.constants["%total_smem_size"] = shared.used_bytes
    for variable in device:
        _enter(variable, binder, memory, written.get(variable.name))
    _check_written(written, device)
    data = np.frombuffer(parameters.data, np.uint8).copy()
    if data.size:
        allocation = Allocation("the kernel's parameters", PARAM_WINDOW, data.size, "param", False)
        memory.add(allocation, [Window(allocation, PARAM_WINDOW, data)])
    return binder


def _used_symbols(code: FlatCode) -> set[str]:
    """Names that some instruction mentions: unused static shared arrays take no space in this kernel."""
    from tinygpu.ptx.emulator.source.syntax import AddressOperand, Instruction

    used: set[str] = set()
    for statement in code.statements:
        if isinstance(statement, Instruction):
            for operand in statement.operands:
                if isinstance(operand, SymbolOperand):
                    used.add(operand.name)
                elif isinstance(operand, AddressOperand) and isinstance(operand.base, SymbolOperand):
                    used.add(operand.base.name)
    return used


def _place_grid_workspace(code: FlatCode, binder: Binder, memory: GlobalMemory) -> None:
    """What a cooperative launch gives to kernels that ask for it: zeroed words for a barrier over the grid.

    Source: cooperative_groups/details/driver_abi.h of the CUDA toolkit. %envreg1 and %envreg2 hold the upper and the
    lower half of the address.
    """
    from tinygpu.ptx.emulator.source.syntax import Instruction

    names = {
        operand.name
        for statement in code.statements if isinstance(statement, Instruction)
        for operand in statement.operands if isinstance(operand, SpecialOperand)
    }  # fmt: skip
    if names.isdisjoint(("%envreg1", "%envreg2")):
        return
    address = memory.place(_GRID_WORKSPACE_BYTES)
    allocation = Allocation("the grid's workspace", address, _GRID_WORKSPACE_BYTES)
    memory.add(allocation, [Window(allocation, address, np.zeros(_GRID_WORKSPACE_BYTES, np.uint8))])
    binder.constants["%envreg1"], binder.constants["%envreg2"] = address >> 32, address & 0xFFFFFFFF


def _place_dynamic(dynamic: list[Variable], shared: SpaceLayout, launch: Launch, binder: Binder) -> None:
    """All extern shared arrays are names for the same dynamic memory."""
    size = launch.dynamic_smem_bytes
    if dynamic or size:
        align = max([16, *(v.align_bytes for v in dynamic)])
        # The largest base alignment is the declared one: a kernel that needs more has to round up itself.
        address = shared.place("the dynamic shared memory", size, align)
        for variable in dynamic:
            binder.symbols[variable.key] = Symbol("shared", address, size)
    if shared.used_bytes > _MAX_SHARED_BYTES:
        raise LaunchError(
            f"the kernel needs {shared.used_bytes} bytes of shared memory, more than the {_MAX_SHARED_BYTES} of any CTA"
        )


def _check_written(written: Mapping[str, NDArray[Any]], device: list[Variable]) -> None:
    sizes = {variable.name: variable.size_bytes for variable in device}
    for name, array in written.items():
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise LaunchError(f"this module has no variable {name} in constant or global space; it has {known}")
        if array.nbytes != sizes[name]:
            raise LaunchError(f"{name} has {sizes[name]} bytes, and {array.nbytes} are written into it")


def _enter(variable: Variable, binder: Binder, memory: GlobalMemory, written: NDArray[Any] | None) -> None:
    data = np.zeros(variable.size_bytes, np.uint8)
    if written is not None and written.nbytes == data.size:
        data[:] = memory_bytes(written, variable.name)
    for offset, width, value in variable.elements if written is None else ():
        if isinstance(value, SymbolOperand):
            symbol = binder.symbols.get(value.name)
            if symbol is None:
                raise PtxSyntaxError(variable.line, 1, f"{variable.name} starts as {value.name}, which is not declared")
            mask = value.mask
            value = symbol.address + value.offset + generic_base(symbol.space)
            if mask:
                # 0xff00(name): these bits of the address, shifted down.
                value = (value & mask) >> ((mask & -mask).bit_length() - 1)
        raw = (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
        data[offset : offset + width] = np.frombuffer(raw, np.uint8)
    symbol = binder.symbols[variable.key]
    base = symbol.address + (CONST_WINDOW if variable.space == "const" else 0)
    if data.size:
        allocation = Allocation(variable.name, base, data.size, variable.space, variable.space == "global")
        memory.add(allocation, [Window(allocation, base, data)])


def _constants(launch: Launch) -> dict[str, int]:
    """Special registers that are the same for all threads of a launch."""
    result = {"%nwarpid": 64, "%nsmid": 128, "%gridid": 1, "%dynamic_smem_size": launch.dynamic_smem_bytes,
              "%aggr_smem_size": launch.dynamic_smem_bytes, "%reserved_smem_offset_begin": 0,
              "%reserved_smem_offset_end": SHARED_BASE, "%reserved_smem_offset_cap": SHARED_BASE,
              "%reserved_smem_offset_0": 0, "%reserved_smem_offset_1": 0,
              "%is_explicit_cluster": int(launch.cluster_size > 1),
              "%cluster_nctarank": launch.cluster_size}  # fmt: skip
    for position, axis in enumerate("xyz"):
        result[f"%ntid.{axis}"] = launch.block[position]
        result[f"%nctaid.{axis}"] = launch.grid[position]
        result[f"%cluster_nctaid.{axis}"] = launch.cluster[position]
        result[f"%nclusterid.{axis}"] = launch.grid[position] // launch.cluster[position]
    for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
        result[f"%{name}.w"] = 0
    return result
