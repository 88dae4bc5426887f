"""All subjects: shipped machines, kernels of nvcc, kernels of Triton."""

from __future__ import annotations

from mutations.machine_subjects import machine_subjects
from mutations.nvcc_blackwell_subjects import nvcc_blackwell_subjects
from mutations.nvcc_hopper_subjects import nvcc_hopper_subjects
from mutations.nvcc_subjects import nvcc_subjects
from mutations.subjects import Subject
from mutations.triton_subjects import triton_subjects


def every_subject() -> list[Subject]:
    return [
        *machine_subjects(), *nvcc_subjects(), *nvcc_hopper_subjects(), *nvcc_blackwell_subjects(), *triton_subjects(),
    ]  # fmt: skip
