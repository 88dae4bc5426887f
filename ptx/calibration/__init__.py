"""Calibration: PTX microbenchmarks, each proved in the emulator, and the measured profile of a GPU that they give."""

from tinygpu.ptx.calibration.benchmark import Launch as Launch
from tinygpu.ptx.calibration.benchmark import Microbenchmark as Microbenchmark
from tinygpu.ptx.calibration.benchmark import Reading as Reading
from tinygpu.ptx.calibration.chip import Chip as Chip
from tinygpu.ptx.calibration.launcher import Gpu as Gpu
from tinygpu.ptx.calibration.launcher import Launcher as Launcher
from tinygpu.ptx.calibration.measuring import Measured as Measured
from tinygpu.ptx.calibration.measuring import Outcome as Outcome
from tinygpu.ptx.calibration.measuring import Rounds as Rounds
from tinygpu.ptx.calibration.measuring import measure as measure
from tinygpu.ptx.calibration.profile import Calibration as Calibration
from tinygpu.ptx.calibration.profile import load_calibration as load_calibration
from tinygpu.ptx.calibration.profile import measured_profile as measured_profile
from tinygpu.ptx.calibration.profile import save_profile as save_profile
from tinygpu.ptx.calibration.run import Calibrated as Calibrated
from tinygpu.ptx.calibration.run import Settings as Settings
from tinygpu.ptx.calibration.run import calibrate as calibrate
from tinygpu.ptx.calibration.run import calibrate_to_file as calibrate_to_file
from tinygpu.ptx.calibration.suite import chosen as chosen
from tinygpu.ptx.calibration.suite import microbenchmarks as microbenchmarks

__all__ = [
    "Calibrated",
    "Calibration",
    "Chip",
    "Gpu",
    "Launch",
    "Launcher",
    "Measured",
    "Microbenchmark",
    "Outcome",
    "Reading",
    "Rounds",
    "Settings",
    "calibrate",
    "calibrate_to_file",
    "chosen",
    "load_calibration",
    "measure",
    "measured_profile",
    "microbenchmarks",
    "save_profile",
]
