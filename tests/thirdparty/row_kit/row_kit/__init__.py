"""Rows: a package beside tinyGPU, found by its entry points."""
