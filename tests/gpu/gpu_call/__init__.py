"""One call on a machine with a GPU: steps under a budget of time, one folder of results.

`prepare` runs on any machine and writes a kit: kernels for everything that the call will do. `run` needs the kit and
the GPU, and neither Z3 nor sympy. `collect` turns its folder into a page under docs/results.
"""
