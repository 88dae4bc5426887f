"""How slots that the CTAs of a cluster fill for each other are given back, and that no weaker way passes the emulator.

Arrivals without a scope where wgmma alone reads the slots; releases at cluster scope where any thread does.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from cluster_rings import Product, ProductAndFold
from ring_edits import handover_edits

from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

H100 = device("h100")
SIZES = {"m": 200, "n": 136, "k": 200}
AGENTS, THREADS = "mbarrier.arrive.shared::cluster.b64", "mbarrier.arrive.release.cluster.shared::cluster.b64"
ACQUIRE = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"


def kernels(machine: type[Machine], **fixed: Any) -> list[Kernel]:
    """The kernels of all candidates with these parameters."""
    problem = machine.problem(**SIZES)
    space = build_space(machine, problem, H100)
    points = list(space.space.restrict(fixed))
    assert points
    return [build(space.program(point), problem, point, SolverCache()).kernel for point in points]


def verified(kernel: Kernel, machine: type[Machine], problem: Problem, order: Order = "late") -> Verification:
    return verify(kernel, machine, problem, orders=(order,), random_inputs=False)


def arrivals(kernel: Kernel) -> set[str]:
    return set(re.findall(r"mbarrier\.arrive\S*shared::cluster\S*", kernel.ptx))


@pytest.mark.end_to_end
@pytest.mark.sampled(7)
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("clusters", [(1, 2), (2, 2)])  # a, which threads read, comes from another CTA
@pytest.mark.parametrize(
    ("machine", "product", "form"),
    [(Product, "wgmma", AGENTS), (Product, "mma.sync", THREADS), (ProductAndFold, "", THREADS)],
)
def test_the_arrival_is_that_of_the_readers_and_no_weaker_one_is_right(
    machine: type[Machine], product: str, form: str, clusters: tuple[int, int], stages: int
) -> None:
    fixed: dict[str, Any] = {"stages": stages, "cluster_m": clusters[0], "cluster_n": clusters[1]}
    (kernel,) = kernels(machine, **fixed, **({"product": product} if product else {}))
    problem = machine.problem(**SIZES)
    assert arrivals(kernel) == {form}
    assert (ACQUIRE in kernel.ptx) == (form == THREADS)
    assert verified(kernel, machine, problem, "random").passed
    for weaker in (AGENTS, THREADS.replace("release", "relaxed")):
        if weaker == form:
            continue
        found = verified(replace(kernel, ptx=kernel.ptx.replace(form, weaker)), machine, problem)
        assert not found.passed
        assert "cp.async.bulk.tensor" in str(found)


@pytest.mark.end_to_end
@pytest.mark.sampled(9)
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize(("machine", "product"), [(Product, "wgmma"), (Product, "mma.sync"), (ProductAndFold, "")])
def test_a_wrong_count_of_arrivals_is_caught_however_few_rounds_there_are(
    machine: type[Machine], product: str, stages: int
) -> None:
    fixed: dict[str, Any] = {"stages": stages, "cluster_m": 2, "cluster_n": 2}
    (kernel,) = kernels(machine, **fixed, **({"product": product} if product else {}))
    problem = machine.problem(**SIZES)
    counts = [edit for kind, edit in handover_edits(kernel.ptx) if kind == "count"]
    assert len(counts) >= 2 * stages
    for edit in counts:
        assert not verified(replace(kernel, ptx=edit.text), machine, problem).passed, edit


def test_threads_that_read_beside_wgmma_pass_a_proxy_fence_before_they_give_back() -> None:
    (kernel,) = kernels(ProductAndFold, stages=2, cluster_m=2, cluster_n=2)
    consumer = kernel.ptx.split("// role consumer")[1]
    loop = consumer[consumer.index("wgmma.mma_async") : consumer.index(THREADS)]
    assert loop.rindex("ld.shared") < loop.index("fence.proxy.async.shared::cta;") < loop.index("wgmma.wait_group")


@pytest.mark.end_to_end
def test_a_product_from_registers_keeps_the_release_of_the_cluster() -> None:
    """An a that wgmma cannot read passes through threads, and its slots are filled by other CTAs."""
    problem = MatmulHopper.problem(
        m=208, n=136, k=176, dtypes={"a": "tf32", "b": "tf32", "c": "f32"}, majors={"a": "col", "b": "col"}
    )
    space = build_space(MatmulHopper, problem, H100)
    tile = {"bm": 128, "bn": 64, "bk": 64, "stages": 2, "swizzle": 64, "cluster_m": 1, "cluster_n": 2}
    point = space.space.restrict({"schedule": "single", "store": "direct", "split_k": 1, "stream_k": 0, **tile}).at(0)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert arrivals(kernel) == {THREADS}
    assert verified(kernel, MatmulHopper, problem).passed
    weak = replace(kernel, ptx=kernel.ptx.replace(THREADS, AGENTS))
    assert "may still be reading" in str(verified(weak, MatmulHopper, problem))


def test_products_beside_threads_are_not_serialised() -> None:
    (kernel,) = kernels(ProductAndFold, stages=2, cluster_m=2, cluster_n=1)
    assert "wgmma" not in " ".join(assemble(kernel.ptx, kernel.architecture).warnings)
