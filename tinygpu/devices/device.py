"""A device: the profile of one GPU, every figure with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.devices.fields import DERIVED, REQUIRED, UNITS, WORDS
from tinygpu.devices.figure import Figure, FigureValue, figure_from_json
from tinygpu.devices.rules import derive
from tinygpu.devices.targets import Target, target
from tinygpu.files import FileError
from tinygpu.files.error import excerpt
from tinygpu.files.writing import write_file

SCHEMA = "tinygpu-device/1"
# The files that ship have some 30 KB; a measured profile has its calibration beside that.
DEVICE_BYTES = 2**22
BEGINS = f'{{\n  "schema": "{SCHEMA}"'.encode()

# Tensor rate fields by (operand dtype, accumulator dtype). Operands of 6 and 8 bits share one rate.
_TENSOR_FIELDS: Mapping[tuple[str, str], str] = {
    ("f16", "f32"): "tensor_f16_fp32acc_flop_per_clk_sm",
    ("f16", "f16"): "tensor_f16_fp16acc_flop_per_clk_sm",
    ("bf16", "f32"): "tensor_bf16_flop_per_clk_sm",
    ("tf32", "f32"): "tensor_tf32_flop_per_clk_sm",
    ("e4m3", "f32"): "tensor_fp8_fp32acc_flop_per_clk_sm",
    ("e5m2", "f32"): "tensor_fp8_fp32acc_flop_per_clk_sm",
    ("e2m3", "f32"): "tensor_fp8_fp32acc_flop_per_clk_sm",
    ("e3m2", "f32"): "tensor_fp8_fp32acc_flop_per_clk_sm",
    ("e4m3", "f16"): "tensor_fp8_fp16acc_flop_per_clk_sm",
    ("e5m2", "f16"): "tensor_fp8_fp16acc_flop_per_clk_sm",
    ("e2m1", "f32"): "tensor_fp4_flop_per_clk_sm",
    ("s8", "s32"): "tensor_int8_op_per_clk_sm",
    ("u8", "s32"): "tensor_int8_op_per_clk_sm",
    ("f64", "f64"): "tensor_f64_flop_per_clk_sm",
}


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: limits, throughputs, latencies, each a Figure.

    name     "A100-SXM4-80GB"
    aliases  other names that find it: "a100"
    figures  field -> Figure as given by the file (fields and units: `tinygpu.devices.fields`)
    """

    name: str
    aliases: tuple[str, ...]
    figures: Mapping[str, Figure]

    def __post_init__(self) -> None:
        for field, figure in self.figures.items():
            if field not in UNITS:
                near = get_close_matches(field, UNITS, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"[device {self.name}] unknown figure {field!r}{hint}")
            if figure.unit != UNITS[field]:
                raise ValueError(
                    f"[device {self.name}] {field} is given in {figure.unit!r}; it must be in {UNITS[field]!r}"
                )
            if figure.value is not None and isinstance(figure.value, str) != (field in WORDS):
                kind = "a text" if field in WORDS else "a number"
                raise ValueError(f"[device {self.name}] {field} must be {kind}, not {figure.value!r}")
        for field in REQUIRED:
            if field not in self.figures or self.figures[field].value is None:
                raise ValueError(f"[device {self.name}] the figure {field!r} is missing: no model works without it")
        if self.max_warps_per_sm * 32 != self.max_threads_per_sm:
            raise ValueError(
                f"[device {self.name}] {self.max_warps_per_sm} warps of 32 lanes are not {self.max_threads_per_sm} "
                "threads per SM"
            )
        if target(self.target).cc != self.cc:
            raise ValueError(
                f"[device {self.name}] target {self.target} does not belong to compute capability "
                f"{self.compute_capability}"
            )
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    def __hash__(self) -> int:
        return hash((self.name, self.aliases))

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.name, self.aliases, dict(self.figures))

    def __str__(self) -> str:
        return f"{self.name} ({self.target}, {self.sm_count} SMs)"

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    # Figures

    def given(self, field: str) -> Figure:
        """The figure as the library holds it; kind "null" where no source was found."""
        if field not in UNITS:
            near = get_close_matches(field, [*UNITS, *DERIVED], 3)
            hint = f"; closest: {', '.join(near)}" if near else ""
            raise ValueError(f"[device {self.name}] unknown figure {field!r}{hint}")
        return self.figures.get(field, Figure(None, UNITS[field], "", "null"))

    def figure(self, field: str) -> Figure:
        """The figure, or where no source was found the one that a stated rule derives.

        A derived figure has kind "derived" and its rule as source. Kind "null" means that there is no rule either.
        """
        known = Figure(None, DERIVED[field], "", "null") if field in DERIVED else self.given(field)
        if known.value is not None:
            return known
        return derive(field, self.figures) or known

    def number(self, field: str) -> float:
        """The value of a numeric figure (derived where a rule says so), in the unit of the field."""
        value = self.figure(field).value
        if value is None:
            raise ValueError(f"[device {self.name}] no source gives {field}, and no rule derives it")
        if isinstance(value, str):
            raise TypeError(f"[device {self.name}] {field} is a text, not a number: {value!r}")
        return value

    def _integer(self, field: str) -> int:
        return int(self.number(field))

    # Identity

    @property
    def marketing_name(self) -> str:
        return str(self.figure("marketing_name").value)

    @property
    def compute_capability(self) -> str:
        """ "8.0" """
        return str(self.figure("compute_capability").value)

    @property
    def cc(self) -> int:
        """Compute capability as major * 10 + minor: 80, 86, 89, 90, 100, 120."""
        major, _, minor = self.compute_capability.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            raise ValueError(
                f"[device {self.name}] compute_capability must be written like '8.0', not {self.compute_capability!r}"
            )
        return int(major) * 10 + int(minor)

    @property
    def target(self) -> str:
        """The most capable PTX target of the part: "sm_80", "sm_90a"."""
        return str(self.figure("ptx_target").value)

    @property
    def portable_target(self) -> str:
        """The PTX target without architecture-specific instructions: "sm_90" for "sm_90a"."""
        return str(target(self.target).portable)

    def runs(self, ptx_target: str | Target) -> bool:
        """True when PTX compiled for `ptx_target` runs here: "sm_80" on any later part, "sm_90a" on 9.0 only."""
        return target(ptx_target).runs_on(self.cc)

    # Limits

    @property
    def sm_count(self) -> int:
        return self._integer("sm_count")

    @property
    def max_warps_per_sm(self) -> int:
        return self._integer("max_warps_per_sm")

    @property
    def max_threads_per_sm(self) -> int:
        return self._integer("max_threads_per_sm")

    @property
    def max_blocks_per_sm(self) -> int:
        return self._integer("max_blocks_per_sm")

    @property
    def max_threads_per_block(self) -> int:
        return self._integer("max_threads_per_block")

    @property
    def tmem_bytes_per_sm(self) -> int:
        """Tensor memory; 0 where there is none."""
        return int(self.given("tmem_kb_per_sm").value or 0) * 1024

    @property
    def warp_schedulers_per_sm(self) -> int:
        return self._integer("warp_schedulers_per_sm")

    @property
    def registers_per_sm(self) -> int:
        return self._integer("registers_per_sm")

    @property
    def max_registers_per_thread(self) -> int:
        return self._integer("max_registers_per_thread")

    @property
    def register_alloc_unit(self) -> int:
        """Registers that one warp is given at a time."""
        return self._integer("register_alloc_unit")

    @property
    def max_smem_bytes_per_sm(self) -> int:
        return self._integer("max_smem_per_sm")

    @property
    def max_smem_bytes_per_block(self) -> int:
        """With opt-in; without it a block gets 48 KiB."""
        return self._integer("max_smem_per_block_optin")

    @property
    def reserved_smem_bytes_per_block(self) -> int:
        return self._integer("reserved_smem_per_block")

    @property
    def smem_alloc_granularity_bytes(self) -> int:
        return self._integer("smem_alloc_granularity")

    @property
    def l2_bytes(self) -> int:
        return int(self.number("l2_size_mb") * 2**20)

    @property
    def l2_near_bytes(self) -> int:
        """L2 capacity for data that every SM reads: with two partitions a line is kept in both, so half counts."""
        return int(self.l2_bytes / self.number("l2_partitions"))

    def constants(self) -> dict[str, int]:
        """The integer limits that constraints name, as "device.NAME"."""
        fields = (
            "max_smem_per_block_optin",
            "max_smem_per_sm",
            "reserved_smem_per_block",
            "smem_alloc_granularity",
            "max_threads_per_block",
            "max_threads_per_sm",
            "max_warps_per_sm",
            "max_blocks_per_sm",
            "registers_per_sm",
            "max_registers_per_thread",
            "register_alloc_unit",
            "warp_schedulers_per_sm",
            "max_cluster_size_portable",
            "max_cluster_size_nonportable",
            "sm_count",
        )
        out = {field: self._integer(field) for field in fields}
        out["tmem_bytes_per_sm"] = self.tmem_bytes_per_sm
        out["l2_bytes"] = self.l2_bytes
        out["l1_smem_bytes"] = int(self.number("l1_smem_unified_kb") * 1024)
        out["cc"] = self.cc
        return out

    def sms_of_clusters(self, size: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """SMs on which clusters of a size find room with a CTA on each, since a cluster has the SMs of one GPC.

        size  CTAs of a cluster. Two are the SMs of a TPC, of which no part has an odd one.

        >>> from tinygpu.devices import device
        >>> device("h100").sms_of_clusters(np.array([1, 2, 4, 8, 16])).tolist()
        [132, 132, 132, 120, 112]
        """
        asked = np.asarray(size, dtype=np.int64)
        sms = np.full(asked.shape, self.sm_count, dtype=np.int64)
        for known in (4, 8, 16):
            sms = np.where(asked >= known, int(self.number(f"active_clusters_of_{known}")) * known, sms)
        return np.asarray(sms // asked * asked, dtype=np.int64)

    # Throughputs and latencies, in SI units and cycles

    @property
    def boost_clock_hz(self) -> float:
        return self.number("boost_clock_mhz") * 1e6

    @property
    def tensor_clock_hz(self) -> float:
        """The clock at which SMs x rate gives the datasheet's tensor peak; never above boost."""
        return min(self.number("tensor_clock_implied_mhz"), self.number("boost_clock_mhz")) * 1e6

    @property
    def dram_bytes_per_s(self) -> float:
        return self.number("dram_bw_gbs_sustained") * 1e9

    @property
    def l2_bytes_per_s(self) -> float:
        return self.number("l2_bw_gbs_sustained") * 1e9

    def tensor_flops_per_clk_sm(self, operand: str, accumulator: str) -> float:
        """Dense tensor-core FLOP (or integer OP) per clock and SM of the fastest path; 0 where there is none.

        operand      dtype of A and B: f16, bf16, tf32, e4m3, e5m2, e2m3, e3m2, e2m1, s8, u8, f64
        accumulator  f32, f16, s32 or f64; consumer parts halve the rate of f16 and fp8 with f32
        """
        field = _TENSOR_FIELDS.get((operand, accumulator))
        if field is None:
            known = ", ".join(f"{a} in {b}" for a, b in _TENSOR_FIELDS)
            raise ValueError(f"no tensor core multiplies {operand} and accumulates in {accumulator}; known: {known}")
        return self.number(field)

    def mma_sync_share(self) -> float:
        """Share of the tensor rate that `mma.sync` reaches: 1 up to sm_89, less where wgmma or tcgen05 exists."""
        if self.cc // 10 not in (9, 10, 11):
            return 1.0
        rate = self.number("tensor_f16_fp32acc_flop_per_clk_sm")
        return min(1.0, 4096 * 4 / (self.number("issue_interval_mma_m16n8k16") * rate))

    @property
    def sustained_tensor_share(self) -> float:
        """Library matrix products over the tensor peak: what power and clocks let through for long (0 to 1]."""
        if not self.figure("tensor_f16_fp32acc_flop_per_clk_sm").value:
            return 1.0
        rate = self.number("tensor_f16_fp32acc_flop_per_clk_sm")
        peak = rate * self.sm_count * self.tensor_clock_hz
        return min(1.0, self.number("tflops_f16_sustained") * 1e12 / peak)

    @property
    def clock_holds(self) -> bool:
        """True where the clock stays at boost under sustained tensor work, and the tensor cores are held back instead.

        Those are the parts whose datasheet rates tensor work clearly below boost (H100 and B200 class). Evidence: an
        H200 ran a bf16 product of 8192 cubed at 783 TFLOP/s while its SM clock read 1980 MHz, its boost. On other parts
        a sustained rate below the datasheet's is read as a lower clock.
        """
        return self.tensor_clock_hz < 0.96 * self.boost_clock_hz

    # Files

    def with_figures(self, figures: Mapping[str, Figure], name: str | None = None) -> Device:
        """The same device with some figures replaced (by measured ones, say)."""
        return Device(name or self.name, () if name else self.aliases, {**self.figures, **figures})

    def to_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "name": self.name,
            "aliases": list(self.aliases),
            "figures": {field: figure.to_json() for field, figure in self.figures.items()},
        }

    def save(self, path: str | Path) -> None:
        """Writes the device file, one figure a line."""
        figures = ",\n".join(f"    {json.dumps(f)}: {json.dumps(g.to_json())}" for f, g in self.figures.items())
        head = f'  "schema": "{SCHEMA}",\n  "name": {json.dumps(self.name)},\n'
        head += f'  "aliases": {json.dumps(list(self.aliases))},\n'
        write_file(path, "{\n" + head + '  "figures": {\n' + figures + "\n  }\n}\n", (BEGINS,), "a device file")


def device_from_json(data: object, where: str = "device file") -> Device:
    """The device written as a JSON object {schema, name, aliases, figures}. Raises FileError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else None
        raise FileError(f"[{where}] the schema must be {SCHEMA!r}, not {excerpt(found)}")
    name, aliases, figures = data.get("name"), data.get("aliases", []), data.get("figures")
    if not isinstance(name, str) or not name:
        raise FileError(f"[{where}] the name must be a text, not {excerpt(name)}")
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise FileError(f"[{where}] aliases must be a list of texts, not {excerpt(aliases)}")
    if not isinstance(figures, dict):
        raise FileError(f"[{where}] figures must be an object of field: figure, not {excerpt(figures)}")
    extra = sorted(set(data) - {"schema", "name", "aliases", "figures", "calibration"})
    if extra:
        raise FileError(
            f"[{where}] there is no {excerpt(extra[0])} in a device file; there are schema, name, aliases and figures"
        )
    try:
        return Device(name, tuple(aliases), {field: figure_from_json(field, f) for field, f in figures.items()})
    except (TypeError, ValueError, OverflowError) as error:
        raise FileError(f"[{where}] {error}") from error


__all__ = ["SCHEMA", "Device", "FigureValue", "device_from_json"]
