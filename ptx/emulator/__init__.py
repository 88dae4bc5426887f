"""The PTX emulator: runs PTX text of any compiler on NumPy arrays, checks it, and counts what it does."""

from tinygpu.ptx.emulator.buffers import DeviceBuffer, SparseBuffer
from tinygpu.ptx.emulator.emulate import emulate
from tinygpu.ptx.emulator.faults import (
    Advisory,
    EmulationFault,
    Fault,
    LaunchError,
    PtxSyntaxError,
    UnsupportedInstruction,
)
from tinygpu.ptx.emulator.meter import Counters, LineCounters
from tinygpu.ptx.emulator.report import Report

__all__ = [
    "Advisory",
    "Counters",
    "DeviceBuffer",
    "EmulationFault",
    "Fault",
    "LaunchError",
    "LineCounters",
    "PtxSyntaxError",
    "Report",
    "SparseBuffer",
    "UnsupportedInstruction",
    "emulate",
]
