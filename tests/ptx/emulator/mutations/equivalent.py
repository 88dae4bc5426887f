"""Mutants that are no worse than the original, and why: by subject and number, each reason read from its PTX.

A reason here is a claim that a reader can check in the kernel's text. A mutant that is not listed and that nothing
notices is a miss, and the test fails; so does a listed one that is noticed after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mutations.operators import Mutant
from mutations.subjects import Subject
from tinygpu.ptx.assembler import AssemblerError, assemble

SAME_CODE = "the assembler makes the same machine code of it"
ALONE = "one grid is launched alone: it has nothing to wait for, and nobody waits for it"
BUDGET = "it moves registers between warpgroups and changes no value"
LAST = "nothing follows it that touches shared memory, or that another warp must see"
TWICE = "it stands twice in a row: either of the two is enough"
NOTHING_NEW = "nothing was committed or copied since the wait and the barrier before it"
JOINS_NEXT = "its copies join the next group, and each wait asks for both or for neither"
OTHER_BUFFER = "what is still being copied lies in a stage that nobody touches any more"
OWN = "the same thread wrote, updated and reads the word: only one lane of one warp is concerned"
BARRIER = "a barrier of the CTA orders this access and every conflicting one"
COPIES = "its copies arrive by themselves; what the thread itself accessed is ordered by its other arrivals"
FIRST_PASS = "the stages are empty in the first pass, so the first wait for one never waits"
REDUNDANT = "the fence and the release order the same: either of the two is enough"
ONLY_ATOMICS = "what it guards is changed and read by atomics alone"
PRIVATE = "a variable of the thread's own"
READ_ONLY = "nobody writes there during the launch"
ONE_EACH = "every thread counts an element of its own"
NOT_REUSED = "the memory of the barrier is used for nothing else afterwards"
SAME_THREADS = "the last butterfly leaves each element with the thread that reads it now"
MEET_ANYWAY = "lanes of one warp exchange, and shfl.sync before it lets them meet"
LATER_WAIT = "it is waited for through the mbarrier, before the CTA can exit"
IDLE = "the threads that wait here do nothing afterwards that others could disturb"

_TRITON_MATMUL = {
    "commit group 0": JOINS_NEXT,
    "wait group 2": NOTHING_NEW, "wait group 3": NOTHING_NEW, "barrier 1": NOTHING_NEW,
    "wait group 4": TWICE, "wait group 5": TWICE, "wait group 6": TWICE, "wait group 7": TWICE,
    "wait group 9": OTHER_BUFFER,
}  # fmt: skip
EQUIVALENT: Mapping[str, Mapping[str, str]] = {
    "nvcc last_block_sum": {"barrier 8": "after the last step only thread 0 reads, and it reads what it wrote itself"},
    "nvcc fft256": {"barrier 2": SAME_THREADS},
    "nvcc free_list": {"strong access made plain 1": READ_ONLY, "atomic made plain 1": ONE_EACH},
    "nvcc pipeline_block": {
        "strong access made plain 0": BARRIER,
        "mbarrier wait 0": FIRST_PASS, "parity 2": FIRST_PASS, "mbarrier order 0": FIRST_PASS,
        "mbarrier order 1": COPIES, "mbarrier order 3": COPIES,
        **{f"invalidation {n}": NOT_REUSED for n in range(4)},
    },
    "nvcc pipeline_roles": {
        "strong access made plain 0": BARRIER, "strong access made plain 1": BARRIER,
        "strong access made plain 2": BARRIER,
        "barrier 0": OWN, "barrier 1": OWN, "atomic made plain 0": OWN,
        "mbarrier order 2": COPIES,
        **{f"invalidation {n}": NOT_REUSED for n in range(6)},
    },
    "nvcc barriers": {"mbarrier order 0": COPIES, "mbarrier wait 4": IDLE, "mbarrier order 9": IDLE},
    "nvcc latch_and_semaphore": {
        **{f"memory order {n}": ONLY_ATOMICS for n in range(7)},
        **{f"strong access made plain {n}": PRIVATE for n in range(20, 24)},
        "atomic made plain 5": "it adds nothing, and the latch orders all that was added before",
    },
    "nvcc mma_tf32_mbarrier": {"wait group 0": LATER_WAIT},
    "nvcc splitk_semaphore": {"fence 0": REDUNDANT, "fence's scope 0": REDUNDANT, "memory order 1": REDUNDANT},
    "triton matmul": _TRITON_MATMUL,
    "triton int8_matmul": _TRITON_MATMUL,
    "triton attention": {
        "commit group 0": JOINS_NEXT, "commit group 2": JOINS_NEXT,
        "wait group 2": OTHER_BUFFER, "wait group 3": OTHER_BUFFER, "barrier 2": OTHER_BUFFER,
    },
    "triton sort": {"barrier 1": MEET_ANYWAY, "barrier 5": MEET_ANYWAY, "barrier 9": MEET_ANYWAY},
    "triton lock": {"barrier 2": TWICE, "barrier 3": TWICE, "barrier 4": LAST},
}  # fmt: skip
KINDS: Mapping[str, str] = {"grid dependency": ALONE, "register budget": BUDGET}
"""Kinds of which every mutant computes the same here."""


def reason(subject: Subject, mutant: Mutant) -> str:
    """Why a mutant that nothing noticed is no worse than the original; "" where no reason is known."""
    return (
        EQUIVALENT.get(subject.name, {}).get(mutant.name, "")
        or KINDS.get(mutant.kind, "")
        or (SAME_CODE if _same_code(subject, mutant) else "")
    )


def _same_code(subject: Subject, mutant: Mutant) -> bool:
    try:
        return _code(mutant.text) == _code(subject.text)
    except AssemblerError:
        return False


@cache
def _code(text: str) -> bytes:
    target = text.split(".target", 1)[1].split()[0].rstrip(",")
    return assemble(text, target).cubin
