"""What the management library says of a GPU's state: clocks, power, temperature, and why clocks are held back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

# NVML API reference: nvmlClockType_t, nvmlTemperatureSensors_t.
_SM, _MEMORY, _TEMPERATURE_GPU = 1, 2, 0
# nvmlClocksEventReasons: those that mean less than the chip would give.
_REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
    0x80: "power brake",
}  # fmt: skip
_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"


class Clocks:
    """Reads a GPU's state; gives None for everything where there is no management library."""

    def __init__(self, bus: str, library: str = _LIBRARY) -> None:
        self._library: Any = None
        self._device = ctypes.c_void_p()
        try:
            found = ctypes.CDLL(library)
            if found.nvmlInit_v2():
                return
            if not found.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(self._device)):
                self._library = found
        except (OSError, AttributeError):
            return

    def read(self) -> dict[str, Any] | None:
        """sm_mhz, memory_mhz, watts, celsius, and `held_back`, the reasons; a figure that cannot be had is None."""
        if self._library is None:
            return None
        nvml, device = self._library, self._device
        watts = _figure(lambda out: nvml.nvmlDeviceGetPowerUsage(device, out))
        reasons = ctypes.c_ulonglong()
        known = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(reasons)) == 0
        return {
            "sm_mhz": _figure(lambda out: nvml.nvmlDeviceGetClockInfo(device, _SM, out)),
            "memory_mhz": _figure(lambda out: nvml.nvmlDeviceGetClockInfo(device, _MEMORY, out)),
            "watts": None if watts is None else watts / 1000,
            "celsius": _figure(lambda out: nvml.nvmlDeviceGetTemperature(device, _TEMPERATURE_GPU, out)),
            "held_back": [w for bit, w in _REASONS.items() if reasons.value & bit] if known else None,
        }


def _figure(ask: Callable[[Any], int]) -> int | None:
    value = ctypes.c_uint()
    return None if ask(ctypes.byref(value)) else value.value
