"""Spaces: all points of a machine for one problem on one device, counted, sampled, explained."""

from tinygpu.spaces.elimination import TooLarge
from tinygpu.spaces.part import Axis, Choice, Part, Point, SpaceError
from tinygpu.spaces.solution import FunnelRow
from tinygpu.spaces.space import Space

__all__ = ["Axis", "Choice", "FunnelRow", "Part", "Point", "Space", "SpaceError", "TooLarge"]
