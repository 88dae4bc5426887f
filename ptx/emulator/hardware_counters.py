"""Which metric of Nsight Compute counts on a chip what a counter of the emulator counts.

Names are those of `ncu --query-metrics` (Nsight Compute, "Kernel Profiling Guide", Metrics Decoder). They are data, so
that a run on a GPU can be laid beside a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tinygpu.ptx.emulator.report import Report

Relation = Literal["same", "compiled", "model"]
RELATIONS: dict[Relation, str] = {
    "same": "both count the same thing, so the figures should be equal",
    "compiled": "the chip runs what the assembler made of the PTX: instructions and registers differ",
    "model": "a simple model stands against the real caches",
}


@dataclass(frozen=True, slots=True)
class HardwareCounter:
    """One counter of the emulator beside the chip's.

    counter   attribute of Counters, or of Traffic where the relation is "model"
    metrics   metrics of Nsight Compute, to be added up
    relation  what may make the two differ (RELATIONS)
    note      what else to know
    """

    counter: str
    metrics: tuple[str, ...]
    relation: Relation
    note: str = ""

    def value(self, report: Report) -> float | None:
        """The emulator's figure; None for traffic that was not asked for."""
        source = report.traffic if self.relation == "model" else report.counters
        return None if source is None else float(getattr(source, self.counter))


def _l1(what: str, *operations: str) -> tuple[str, ...]:
    return tuple(f"l1tex__t_{what}_pipe_lsu_mem_{operation}.sum" for operation in operations)


def _copies(what: str) -> tuple[str, ...]:
    """cp.async is LDGSTS on the chip, which counts it apart: with and without L1."""
    return tuple(
        f"sm__sass_l1tex_t_{what}_pipe_lsu_mem_global_op_ldgsts_cache_{way}.sum" for way in ("access", "bypass")
    )


def _shared(operation: str) -> tuple[str, ...]:
    return (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{operation}.sum",)


HARDWARE_COUNTERS: tuple[HardwareCounter, ...] = (
    HardwareCounter("ctas", ("launch__grid_size",), "same", "where all CTAs are run"),
    HardwareCounter("instructions", ("smsp__inst_executed.sum",), "compiled"),
    HardwareCounter("thread_instructions", ("smsp__thread_inst_executed.sum",), "compiled"),
    HardwareCounter("lanes", ("smsp__thread_inst_executed_per_inst_executed.ratio",), "compiled"),
    HardwareCounter(
        "branches", ("smsp__sass_branch_targets.sum",), "compiled", "short branches become predicated instructions"
    ),
    HardwareCounter("divergent_branches", ("smsp__sass_branch_targets_threads_divergent.sum",), "compiled"),
    HardwareCounter(
        "global_load_requests", (*_l1("requests", "global_op_ld"), *_copies("requests")), "same",
        "cp.async is counted apart on the chip",
    ),
    HardwareCounter("global_load_sectors", (*_l1("sectors", "global_op_ld"), *_copies("sectors")), "same"),
    HardwareCounter("global_store_requests", _l1("requests", "global_op_st"), "same"),
    HardwareCounter("global_store_sectors", _l1("sectors", "global_op_st"), "same"),
    HardwareCounter("global_atomic_requests", _l1("requests", "global_op_atom", "global_op_red"), "same"),
    HardwareCounter("global_atomic_sectors", _l1("sectors", "global_op_atom", "global_op_red"), "same"),
    HardwareCounter(
        "local_load_requests", _l1("requests", "local_op_ld"), "compiled", "arrays go to registers, registers spill"
    ),
    HardwareCounter("local_load_sectors", _l1("sectors", "local_op_ld"), "compiled"),
    HardwareCounter("local_store_requests", _l1("requests", "local_op_st"), "compiled"),
    HardwareCounter("local_store_sectors", _l1("sectors", "local_op_st"), "compiled"),
    HardwareCounter(
        "shared_load_requests", ("smsp__sass_inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_ldsm.sum"),
        "same", "ldmatrix is counted apart on the chip",
    ),
    HardwareCounter("shared_load_wavefronts", _shared("ld"), "same"),
    HardwareCounter(
        "shared_store_requests", ("smsp__sass_inst_executed_op_shared_st.sum", "smsp__inst_executed_op_ldgsts.sum"),
        "same", "cp.async writes shared memory, and is counted apart on the chip",
    ),
    HardwareCounter("shared_store_wavefronts", (*_shared("st"), *_shared("ldgsts")), "same"),
    HardwareCounter("shared_atomic_requests", ("smsp__inst_executed_op_shared_atom.sum",), "compiled"),
    HardwareCounter(
        "shared_atomic_wavefronts", _shared("atom"), "compiled", "some atomics become loops of loads and compares"
    ),
    HardwareCounter("bulk_load_bytes", ("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",), "same"),
    HardwareCounter("bulk_store_bytes", ("l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",), "same"),
    HardwareCounter(
        "tensor_operations",
        ("sm__ops_path_tensor_src_fp16_dst_fp32.sum", "sm__ops_path_tensor_src_bf16_dst_fp32.sum"), "same",
        "one metric per pair of types: add those of the kernel's",
    ),
    HardwareCounter("l1_sectors", _l1("sectors", "global_op_ld"), "model", "with cp.async.ca"),
    HardwareCounter(
        "l1_hit_sectors", ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",), "model", "with cp.async.ca"
    ),
    HardwareCounter("l2_load_sectors", ("lts__t_sectors_srcunit_tex_op_read.sum",), "model"),
    HardwareCounter("l2_load_hit_sectors", ("lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",), "model"),
    HardwareCounter("l2_store_sectors", ("lts__t_sectors_srcunit_tex_op_write.sum",), "model"),
    HardwareCounter(
        "l2_atomic_sectors", ("lts__t_sectors_srcunit_tex_op_atom.sum", "lts__t_sectors_srcunit_tex_op_red.sum"),
        "model",
    ),
    HardwareCounter("dram_read_bytes", ("dram__bytes_read.sum",), "model"),
    HardwareCounter(
        "dram_evicted_bytes", ("dram__bytes_write.sum",), "model", "what is left in L2 at the end is not written yet"
    ),
)  # fmt: skip


def hardware_table() -> str:
    """The table of docs/emulator.md."""
    lines = ["| counter | metrics of Nsight Compute, added up | relation |", "| --- | --- | --- |"]
    for entry in HARDWARE_COUNTERS:
        metrics = " ".join(f"`{metric}`" for metric in entry.metrics)
        note = f": {entry.note}" if entry.note else ""
        lines.append(f"| `{entry.counter}` | {metrics} | {entry.relation}{note} |")
    return "\n".join(lines)
