"""A kernel: PTX text and how to launch it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tinygpu.language.memories import BANK_ALIGN_BYTES
from tinygpu.language.problem import Problem
from tinygpu.language.tensors import extent_of
from tinygpu.program.saved import load_scheduler, save_scheduler
from tinygpu.ptx.launching.rings import Ring
from tinygpu.schedulers.launch_rule import MOST_ROUNDS
from tinygpu.schedulers.scheduler import TileScheduler

# CUDA driver API, cuTensorMapEncodeTiled: globalStrides.
MOST_PITCH_BYTES = 2**40


class LaunchError(ValueError):
    """A problem that a kernel was not made for."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter, in order.

    kind  "pointer" (64-bit address of a tensor), "place" (where it begins in a bank, bytes, u32), "ld" (its leading
          dimension, elements, u32; u64 beyond two dims), "stride0" to "stride4" (of that axis, elements, u64), "dim"
          (u32), "scalar", "map" (a tensor map by value, 128 bytes) or "workspace" (64-bit address of one)
    """

    name: str
    kind: str
    type: str


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """A tensor map that the launch makes and passes by value, as CUtensorMap.

    tensor      the operand
    order       its axes, the contiguous one first
    box         elements along each of these
    swizzle_bytes  width of the swizzle; 0: none
    piece       elements of the pieces into which rows are cut, and that follow each other along a last dimension of the
                map, which the box has as well; 0: rows are whole
    atom_bytes  bytes that the swizzle leaves together
    padded      whether each 16 elements of 4 or 6 bits get 16 bytes in shared memory
    """

    name: str
    tensor: str
    order: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    piece: int = 0
    atom_bytes: int = 16
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Workspace:
    """Device memory that a launch supplies, beside the tensors; launches that may run at a time have one each.

    tile_bytes  for every tile of the grid
    zeroed      zeros before the first launch, and left as zeros by every one; else it may hold anything
    cta_bytes   for every CTA that is launched
    """

    name: str
    tile_bytes: int
    zeroed: bool
    cta_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Bank:
    """A variable of the module in constant space, into which a launch puts tensors: one after another.

    tensors  by name, in their order
    """

    name: str
    size_bytes: int
    tensors: tuple[str, ...]

    @property
    def declaration(self) -> str:
        return f".const .align {BANK_ALIGN_BYTES} .b8 {self.name}[{self.size_bytes}];"

    def places(self, problem: Problem) -> dict[str, int]:
        """Tensor -> where it begins, in bytes; raises LaunchError where they do not fit."""
        out, end = {}, 0
        for name in self.tensors:
            operand = problem.operand(name)
            out[name] = end
            end += -(-operand.extent_elems * operand.dtype.bits // 8 // BANK_ALIGN_BYTES) * BANK_ALIGN_BYTES
        if end > self.size_bytes:
            listed = " and ".join(self.tensors)
            raise LaunchError(
                f"{listed} take {end:,} bytes of {self.name}, which has {self.size_bytes:,}; make them smaller, or use "
                "a machine that has them in global memory"
            )
        return out


@dataclass(frozen=True, slots=True)
class Fact:
    """A kernel was specialised for `name` (a dim, NAME.ld in elements, NAME.align in bytes) being a multiple."""

    name: str
    divisor: int

    def __str__(self) -> str:
        return f"{self.name} % {self.divisor} == 0"


@dataclass(frozen=True, slots=True)
class Kernel:
    """PTX with its launch description.

    target         oldest sm_ number that runs it
    threads        threads per CTA
    smem_bytes     dynamic shared memory per CTA
    tiles          (dim, extent of a tile) per grid axis: the grid is the product of ceil(dim / extent)
    raster         tile rows that are visited together (see `tinygpu.cost.locality.raster`)
    shapes         per tensor the names of its dims, slowest axis first
    steps          (dim, elements per round) of loops over a dim
    facts          what the launch must check
    point          the candidate
    scheduler      which clusters work on what, and how many are launched, with all numbers filled in
    maps           tensor maps that the launch makes
    clusters       CTAs of a cluster along each grid axis; () where there are no clusters
    suffix         "a": it runs on `target` alone, by instructions that other architectures do not have; "f": on later
                   ones of its family too; "": on all later ones
    workspaces     memory in which CTAs that share a tile leave what they have of it
    dealt          (dim, elements per round) of the loop whose rounds the scheduler deals out to clusters; () where it
                   deals none: then a tile is whole, or in equal slices
    rings          its pipelines, and how many slots of each a tile uses
    turns          tiles of a CTA after which each of its roles has taken its share of them
    banks          variables in constant space that a launch fills
    known          (dim, value) of dims that are numbers in the kernel
    chained        axes of the grid along which CTAs wait for those before them
    groups         per grid axis of how many groups it is (a dim, or a number): for each but one there is a tile more;
                   () where no axis has groups
    """

    name: str
    machine: str
    ptx: str
    target: int
    threads: int
    smem_bytes: int
    parameters: tuple[Parameter, ...]
    tiles: tuple[tuple[str, int], ...]
    raster: int
    shapes: tuple[tuple[str, tuple[str, ...]], ...]
    steps: tuple[tuple[str, int], ...]
    facts: tuple[Fact, ...]
    point: tuple[tuple[str, int | str], ...]
    scheduler: TileScheduler = field(compare=False)
    maps: tuple[TensorMapSpec, ...] = ()
    clusters: tuple[int, ...] = ()
    suffix: str = ""
    workspaces: tuple[Workspace, ...] = ()
    dealt: tuple[str, int] | tuple[()] = ()
    rings: tuple[Ring, ...] = ()
    turns: int = 1
    banks: tuple[Bank, ...] = ()
    known: tuple[tuple[str, int], ...] = ()
    chained: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """The oldest architecture that runs it, as the assembler calls it."""
        return f"sm_{self.target}{self.suffix}"

    def assembled_for(self, device: str) -> str:
        """The architecture to assemble for, to run on a device whose portable target is `device`."""
        return self.architecture if self.suffix == "a" else f"{device}{self.suffix}"

    @property
    def persistent(self) -> bool:
        """Whether any number of clusters up to that of the tiles can be launched, since CTAs take tile after tile."""
        return self.scheduler.launch_rule.persistent

    @property
    def goes_on(self) -> bool:
        """Whether CTAs take tile after tile, however many have to be launched."""
        return self.scheduler.persistent

    @property
    def slices(self) -> int:
        """CTAs (or clusters) that share each tile in equal slices."""
        return self.scheduler.launch_rule.slices

    @property
    def cluster(self) -> tuple[int, int, int]:
        """CTAs of a cluster along x, y, z."""
        return math.prod(self.clusters), 1, 1

    def grid(self, problem: Problem, most: int | None = None) -> tuple[int, int, int]:
        """CTAs along x, y, z; of a persistent kernel no more than `most`, the CTAs that are resident at a time.

        CTAs that share rounds can be as many as there are rounds; where `most` is not given, they are as many as tiles.
        """
        size = math.prod(self.clusters)
        at_most = None if most is None else -(-most // size)
        tiles, rounds = self.tiles_of(problem) // size, self.rounds_of(problem)
        clusters = self.scheduler.launch_rule.clusters(tiles, rounds, at_most)
        return clusters * size, 1, 1

    def rounds_of(self, problem: Problem) -> int:
        """Rounds of a tile that CTAs share in a row; 1 where they share none."""
        if not self.dealt:
            return 1
        dim, step = self.dealt
        return -(-problem.dim[dim] // step)

    def tiles_of(self, problem: Problem) -> int:
        """Tiles of the grid; where CTAs form clusters, those of whole clusters."""
        return math.prod(self.counts(problem)) * math.prod(self.clusters)

    def counts(self, problem: Problem) -> tuple[int, ...]:
        """Tiles along each axis of the grid; where CTAs form clusters, clusters of tiles."""
        return self.counts_of(problem.dim)

    def ctas_along(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Tiles along each axis of the grid for these sizes, those of whole clusters."""
        clusters = self.clusters or (1,) * len(self.tiles)
        return tuple(count * ctas for count, ctas in zip(self.counts_of(dims), clusters, strict=True))

    def counts_of(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The same for these sizes."""
        clusters, groups = self.clusters or (1,) * len(self.tiles), self.groups or ("1",) * len(self.tiles)
        along = zip(self.tiles, clusters, groups, strict=True)
        return tuple(-(-extent_of(d, dims) // (e * c)) + extent_of(g, dims) - 1 for (d, e), c, g in along)

    def workspace_bytes(self, problem: Problem, ctas: int) -> dict[str, int]:
        """Bytes of every workspace, by name, where so many CTAs are launched."""
        return {w.name: w.tile_bytes * self.tiles_of(problem) + w.cta_bytes * ctas for w in self.workspaces}

    def check(self, problem: Problem) -> None:
        """Raises LaunchError for a problem that breaks a fact for which the kernel was specialised, or is too long."""
        rounds = self.rounds_of(problem)
        if self.dealt and rounds > MOST_ROUNDS:
            dim, step = self.dealt
            raise LaunchError(
                f"{self.name} deals out the rounds of tiles, {MOST_ROUNDS:,} of each at most, and {dim} = "
                f"{problem.dim[dim]:,} has {rounds:,} rounds of {step}; use a candidate whose tiles are whole"
            )
        for name, known in self.known:
            if problem.dim[name] != known:
                here = f"and here it is {problem.dim[name]}; tune for this problem"
                raise LaunchError(f"{self.name} was made for {name} = {known}, {here}")
        for name, dims in self.shapes:
            for axis, (d, size) in enumerate(zip(dims, problem.operand(name).shape, strict=False)):
                if d.isdigit() and int(d) != size:
                    raise LaunchError(
                        f"{self.name} was made for {d} elements of {name} along axis {axis}, and here they are {size}; "
                        "tune for this problem"
                    )
        for spec in self.maps:
            operand = problem.operand(spec.tensor)
            farthest = max(operand.strides()[axis] for axis in spec.order) * operand.dtype.bits // 8
            if farthest >= MOST_PITCH_BYTES:
                raise LaunchError(
                    f"{self.name} moves {spec.tensor} by TMA, which steps over less than {MOST_PITCH_BYTES:,} bytes "
                    f"at a time, and here it would be {farthest:,}; use a candidate or a machine without TMA"
                )
        for bank in self.banks:
            bank.places(problem)
        environment = problem.environment()
        for fact in self.facts:
            if fact.name not in environment:
                raise LaunchError(f"{self.name} needs {fact.name}, which the problem does not have")
            if environment[fact.name] % fact.divisor:
                raise LaunchError(
                    f"{self.name} was made for {fact}, and here {fact.name} is {environment[fact.name]}; "
                    "tune for this problem, or use a kernel without that fact"
                )

    def launch_json(self, problem: Problem) -> dict[str, Any]:
        """Everything that a launcher needs, beside the PTX text.

        The bytes of a workspace are those beside what it has for every CTA that is launched.
        """
        bytes_of = self.workspace_bytes(problem, 0)
        return {
            "schema": 1,
            "kernel": self.name,
            "machine": self.machine,
            "target": self.architecture,
            "grid": list(self.grid(problem)),
            "block": [self.threads, 1, 1],
            "cluster": list(self.cluster),
            "persistent": self.persistent,
            "tensor_maps": [asdict(m) for m in self.maps],
            "workspaces": [
                {"name": w.name, "bytes": bytes_of[w.name], "bytes_per_cta": w.cta_bytes, "zeroed": w.zeroed}
                for w in self.workspaces
            ],
            **({"banks": [{"name": b.name, "places": b.places(problem)} for b in self.banks]} if self.banks else {}),
            "dynamic_smem_bytes": self.smem_bytes,
            "grid_from": self._grid_from(),
            "slices": self.slices,
            "dealt": {"dim": self.dealt[0], "step": self.dealt[1]} if self.dealt else None,
            "parameters": [asdict(p) for p in self.parameters],
            "facts": [str(f) for f in self.facts],
            "point": dict(self.point),
            "problem": problem.to_json(),
        }

    def _grid_from(self) -> list[dict[str, Any]]:
        groups = self.groups or ("1",) * len(self.tiles)
        along = zip(self.tiles, groups, strict=True)
        return [{"dim": d, "tile": e} | ({"groups": g} if g != "1" else {}) for (d, e), g in along]

    def to_json(self) -> str:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(plain | {"scheduler": save_scheduler(self.scheduler)}, default=asdict)

    @staticmethod
    def from_json(text: str) -> Kernel:
        data: Mapping[str, Any] = json.loads(text)
        return Kernel(
            data["name"],
            data["machine"],
            data["ptx"],
            data["target"],
            data["threads"],
            data["smem_bytes"],
            tuple(Parameter(**p) for p in data["parameters"]),
            tuple((d, e) for d, e in data["tiles"]),
            data["raster"],
            tuple((name, tuple(dims)) for name, dims in data["shapes"]),
            tuple((d, e) for d, e in data["steps"]),
            tuple(Fact(**f) for f in data["facts"]),
            tuple((k, v) for k, v in data["point"]),
            load_scheduler(data["scheduler"]),
            tuple(
                TensorMapSpec(
                    m["name"], m["tensor"], tuple(m["order"]), tuple(m["box"]), m["swizzle_bytes"], m["piece"],
                    m["atom_bytes"], m["padded"],
                )
                for m in data["maps"]
            ),
            tuple(data["clusters"]),
            data["suffix"],
            tuple(Workspace(**w) for w in data["workspaces"]),
            (data["dealt"][0], data["dealt"][1]) if data["dealt"] else (),
            tuple(Ring(**r) for r in data["rings"]),
            data["turns"],
            tuple(Bank(b["name"], b["size_bytes"], tuple(b["tensors"])) for b in data["banks"]),
            tuple((d, value) for d, value in data["known"]),
            tuple(data["chained"]),
            tuple(data["groups"]),
        )
