"""The CUDA runtime: contexts, memory, kernels, launches, streams and graphs, arrays of other libraries.

Needs NumPy and cuda.bindings, nothing else of what tinyGPU needs, and loads cuda.bindings when a GPU is asked for.
"""
