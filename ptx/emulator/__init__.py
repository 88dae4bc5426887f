"""The PTX emulator: runs PTX text of any compiler on NumPy arrays, checks it, and counts what it does."""

from tinygpu.ptx.emulator.emulate import emulate
from tinygpu.ptx.emulator.faults import (
    Advisory,
    EmulationFault,
    Fault,
    LaunchError,
    PtxSyntaxError,
    UnsupportedInstruction,
)
from tinygpu.ptx.emulator.report import Report
from tinygpu.ptx.emulator.run.prepared import PreparedKernel, prepare
from tinygpu.ptx.emulator.run.structs import Struct
from tinygpu.ptx.emulator.state.buffers import DeviceBuffer, SparseBuffer
from tinygpu.ptx.emulator.state.caches import Caches, LineTraffic, Traffic
from tinygpu.ptx.emulator.state.emulation import ORDERS, Order
from tinygpu.ptx.emulator.state.meter import Counters, LineCounters
from tinygpu.ptx.emulator.state.tensor_map import TensorMap

__all__ = [
    "ORDERS",
    "Advisory",
    "Caches",
    "Counters",
    "DeviceBuffer",
    "EmulationFault",
    "Fault",
    "LaunchError",
    "LineCounters",
    "LineTraffic",
    "Order",
    "PreparedKernel",
    "PtxSyntaxError",
    "Report",
    "SparseBuffer",
    "Struct",
    "TensorMap",
    "Traffic",
    "UnsupportedInstruction",
    "emulate",
    "prepare",
]
