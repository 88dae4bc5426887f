"""Kernels with one synchronisation removed or weakened: how they are made, run and judged."""
