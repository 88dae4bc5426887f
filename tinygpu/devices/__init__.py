"""Real GPUs, each figure with its unit, its kind and its source."""

from tinygpu.devices.device import Device as Device
from tinygpu.devices.figure import Figure as Figure
from tinygpu.devices.library import device as device
from tinygpu.devices.library import devices as devices
from tinygpu.devices.library import load_device as load_device
from tinygpu.devices.tables import describe as describe
from tinygpu.devices.tables import summary as summary
from tinygpu.devices.targets import Target as Target
from tinygpu.devices.targets import target as target

__all__ = ["Device", "Figure", "Target", "describe", "device", "devices", "load_device", "summary", "target"]
