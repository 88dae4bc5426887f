"""Arrays, and what is said of them, of which tests make tensor maps."""

from __future__ import annotations

from typing import Any

import numpy as np

A = np.zeros((8, 64), np.float16)
BASE = 1 << 20
IM2COL: dict[str, Any] = {
    "pixel_box_lower": (0, 0), "pixel_box_upper": (0, 0), "channels_per_pixel": 8, "pixels_per_column": 16,
}  # fmt: skip
X4 = np.zeros((2, 6, 5, 16), np.float16)
WIDE: dict[str, Any] = {
    "mode": "im2col_w", "pixel_box_lower": (0,), "pixel_box_upper": (0,), "channels_per_pixel": 64,
    "pixels_per_column": 16, "swizzle": "128B",
}  # fmt: skip
X64 = np.zeros((2, 6, 5, 64), np.float16)


def fp4(rows: int = 8, bytes_per_row: int = 64) -> np.ndarray[Any, Any]:
    return np.zeros((rows, bytes_per_row), np.uint8)
