"""Measuring: bundles of kernels, their verification and timing on a GPU, and the results.

Like the runtime it needs NumPy and cuda.bindings, nothing else of what tinyGPU needs.
"""
