"""Mutants that are no worse than the original, and why: by subject and number, each reason read from its PTX.

A reason here is a claim that a reader can check in the kernel's text. A mutant that is not listed and that nothing
notices is a miss, and the test fails; so does a listed one that is noticed after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mutations.operators import Mutant, mutants
from mutations.retries import attempt
from mutations.statements import statements
from mutations.subjects import Subject
from tinygpu.ptx.assembling.assembler import AssemblerError, assemble
from tinygpu.ptx.emulator import EmulationFault, emulate

SAME_CODE = "the assembler makes the same machine code of it"
NEVER_OTHER = "the parity is this one whenever the wait is executed here (a probe that traps otherwise never does)"
ALONE = "one grid is launched alone: it has nothing to wait for, and nobody waits for it"
BUDGET = "it moves registers between warpgroups and changes no value"
LAST = "nothing follows it that touches shared memory, or that another warp must see"
TWICE = "it stands twice in a row: either of the two is enough"
NOTHING_NEW = "nothing was committed or copied since the wait and the barrier before it"
JOINS_NEXT = "its copies join the next group, and each wait asks for both or for neither"
FIRST_GROUP = "its copies join the first group of the ring, whose wait and barrier come before the first read"
OTHER_BUFFER = "what is still being copied lies in a stage that nobody touches any more"
OWN_COPIES = "every thread reads what it has copied itself, and fills the slot itself that it has read"
READ_AHEAD = "first fragments are read a round ahead: the last read of the ring is before the barrier of the last round"
OWN = "the same thread wrote, updated and reads the word: only one lane of one warp is concerned"
BARRIER = "a barrier of the CTA orders this access and every conflicting one"
COPIES = "its copies arrive by themselves; what the thread itself accessed is ordered by its other arrivals"
FIRST_PASS = "the stages are empty in the first pass, so the first wait for one never waits"
REDUNDANT = "the fence and the release order the same: either of the two is enough"
ONLY_ATOMICS = "what it guards is changed and read by atomics alone"
PRIVATE = "a variable of the thread's own"
GUESS = "it is a first guess for the compare-and-swap behind it, which kernels known to be right read plainly"
READ_ONLY = "nobody writes there during the launch"
ONE_EACH = "every thread counts an element of its own"
NOT_REUSED = "it only says that the memory is free; using the barrier again would be an advisory, and that it was not"
SAME_THREADS = "the last butterfly leaves each element with the thread that reads it now"
MEET_ANYWAY = "lanes of one warp exchange, and shfl.sync before it lets them meet"
LATER_WAIT = "it is waited for through the mbarrier, before the CTA can exit"
RUNS_ON = "without its branches it runs on into a loop that waits for the same, past a store that nobody reads"
IDLE = "the threads that wait here do nothing afterwards that others could disturb"

OWN_CTA = "nobody but its own CTA uses the barrier, whose threads meet at bar.sync; the fence is for clusters"
NEXT_WAIT = "the next wait::st, before anybody is told, waits for this store too"
NEXT_LOAD_WAIT = "the next wait::ld, before anybody writes there, waits for this load too; its values are used before"
OWN_LANES = "each warp loads and stores its own lanes of tensor memory in between"
LATER_COMMIT = "the wait before it is for a later commit of the same thread, which tracks this product too"
SAME_PROXY = "the operands came by tensor copies: they are written and read in the asynchronous proxy"
NO_SUCH_WARP = "the warp for which the predicate holds does not come here"
NO_TENSOR = "nothing has touched tensor memory yet; the address of what was allocated goes through shared memory"
OPERANDS_ONLY = "the wait before it is for operands in shared memory; a fence behind the wait for tensor memory remains"
LOADED = "what it would order, loads of tensor memory, tcgen05.wait::ld has waited for"
BESIDE = "the barrier beside it (of the CTA, of the cluster) orders the same"
COPIES_COME = "the even CTA multiplies when the other one's copies have come, which that one issues after allocating"
TWICE_FENCED = "two proxy fences lie between the read and the next answer: either is enough"
DEFAULT_SCOPE = "production kernels leave the scope of mbarriers between CTAs at its default, which is .cta"
STAYS = "a relaxed arrival keeps the CTAs until all have come, and nothing is handed over any more"
EXECUTION = "it hands over tensor memory alone, whose order relaxed arrivals and waits pass on too"
BOTH_SIDES = "of the barriers before and behind the proxy fence either is enough"
PERMIT = "no other CTA waits for tensor memory of the same multiprocessor"
UNUSED = "nobody arrives at the barrier or waits for it"
BOTH_AT_ONCE = "the consumer gives back both operands behind one wgmma wait: waiting for either is enough"
NO_STATE = "a state of the dispatcher that this kernel never enters"
MEETS_BEFORE = "a barrier of the CTA lies between the last use by another warp and this"
MEETS_LATER = "a later barrier of the CTA lies before the first use by another warp"
ARRIVAL_OF_COPIES = "the arrival announces copies, which complete by themselves; its thread has accessed nothing itself"
WARPGROUP = "only wgmma reads what is overwritten next, and its groups are the warpgroup's: all four warps' at once"
ALL_CAME = "each CTA waits for all that others send it, so nobody reaches into one that exits"
LANES_MET = "the instruction before it is .sync.aligned: the lanes have met there"
LANES_MEET = "the instruction behind it is .sync.aligned: the lanes meet there"
ONE_WARP = "until the next barrier only one warp accesses shared memory, or each thread what it accessed before"
WAITED_ALL = "every thread has waited itself for what it reads next"
NO_STORES = "no bulk store is in flight here"
SAME_TWICE = "all lanes of one warp do the same to the same place: as if one did"
TURNS = "the barrier gives two warpgroups their turns, and hands over no data"
ELECTED_ENDS = "the branch of the elected lane ends here, and the lanes have met"
NOT_TOUCHED = "nothing but wgmma touched its registers since the fence before"
NO_MORE_LOADS = "no stage is loaded again after this step"
NEVER_RUN = "the loop of the last steps never loads another stage, whatever k is"
LAST_STEP = "nobody waits for the stage of the last step"
ORDERED = "what it reads was published by a release and an acquire"
OWN_PLACE = "each thread writes where it read itself"

_TENSOR_MEMORY = {"tcgen05.fence before 0": NO_TENSOR, "tcgen05.fence after 0": NO_TENSOR}
# Sums in tensor memory, one slot of them; the epilogue loads a tile's in one piece.
_TENSOR_SUMS = {
    **_TENSOR_MEMORY,
    "tcgen05.fence after 1": LOADED, "tcgen05.fence after 2": OPERANDS_ONLY,
    "tcgen05.fence before 2": LOADED, "tcgen05.fence after 4": LOADED,
    **{f"mbarrier order {n}": EXECUTION for n in (2, 4, 5)},
    "warp barrier 0": LANES_MEET, "warp barrier 1": LANES_MET, "warp barrier 2": LANES_MEET,
}  # fmt: skip
_TRITON_MATMUL = {
    "commit group 0": JOINS_NEXT,
    "wait group 2": NOTHING_NEW, "wait group 3": NOTHING_NEW, "barrier 1": NOTHING_NEW,
    "wait group 4": TWICE, "wait group 5": TWICE, "wait group 6": TWICE, "wait group 7": TWICE,
    "wait group 9": OTHER_BUFFER,
}  # fmt: skip
_STREAM_K = {
    "barrier 0": OWN_PLACE, "commit group 0": JOINS_NEXT,
    "wait group 2": NOTHING_NEW, "wait group 3": NOTHING_NEW, "barrier 6": NOTHING_NEW,
    **{f"wait group {n}": TWICE for n in (4, 5, 6, 7)},
    "barrier 13": TWICE, "barrier 14": TWICE,
    **{f"strong access made plain {n}": ORDERED for n in range(8)},
}  # fmt: skip
EQUIVALENT: Mapping[str, Mapping[str, str]] = {
    "machine matmul_ampere 0": {"barrier 2": READ_AHEAD},
    "machine batched_matmul 0": {"barrier 2": READ_AHEAD},
    "machine batched_matmul_hopper 0": {
        **{f"mbarrier order {n}": TURNS for n in (2, 6, 7, 11)},
        **{f"warp barrier {n}": TURNS for n in (0, 1)},
    },
    "machine attention_ampere 0": {"wait group 0": FIRST_GROUP, "barrier 0": FIRST_GROUP},
    "machine attention_varlen_ampere 0": {"wait group 0": FIRST_GROUP, "barrier 0": FIRST_GROUP},
    "machine grouped_matmul_blackwell 0": _TENSOR_SUMS,
    "machine matmul_basic_hopper 0": {"arrival 1": LAST_STEP, "mbarrier order 2": LAST_STEP},
    "machine matmul_basic_blackwell 0": _TENSOR_SUMS,
    "machine matmul_skinny_blackwell 0": _TENSOR_SUMS,
    "machine matmul_skinny_blackwell 1": _TENSOR_SUMS,
    "machine rms_norm_backward 0": {"barrier 0": OWN_COPIES},
    "machine layer_norm_backward 0": {"barrier 0": OWN_COPIES},
    "machine row_scan 0": {"barrier 0": OWN_COPIES},
    "machine long_scan 0": {"warp barrier 0": MEET_ANYWAY},
    "machine matmul_hopper 1": {
        "fence of mbarrier.init 0": REDUNDANT, "cluster barrier's order 0": REDUNDANT,
        "cluster barrier's order 1": STAYS,
            },
    "machine matmul_hopper 2": {
        "fence of mbarrier.init 0": REDUNDANT, "cluster barrier's order 0": REDUNDANT,
        "cluster barrier's order 1": STAYS,
        **{f"mbarrier order {n}": TURNS for n in (2, 6, 7, 11)},
        **{f"warp barrier {n}": TURNS for n in (0, 1)},
    },
    "machine matmul_hopper 3": {"election 1": SAME_TWICE},
    "machine matmul_hopper 4": {"election 1": SAME_TWICE},
    "nvcc last_block_sum": {"barrier 8": "after the last step only thread 0 reads, and it reads what it wrote itself"},
    "nvcc fft256": {"barrier 2": SAME_THREADS},
    "nvcc free_list": {
        "strong access made plain 0": GUESS, "strong access made plain 1": READ_ONLY, "atomic made plain 1": ONE_EACH,
    },
    "nvcc pipeline_block": {
        "strong access made plain 0": BARRIER,
        "mbarrier wait 0": FIRST_PASS, "mbarrier order 0": FIRST_PASS,
        "mbarrier order 1": COPIES, "mbarrier order 3": COPIES,
    },
    "nvcc pipeline_roles": {
        "strong access made plain 0": BARRIER, "strong access made plain 1": BARRIER,
        "strong access made plain 2": BARRIER,
        "barrier 0": OWN, "barrier 1": OWN, "atomic made plain 0": OWN,
        "mbarrier order 2": COPIES,
    },
    "nvcc barriers": {
        "mbarrier order 0": COPIES, "mbarrier wait 4": IDLE, "mbarrier order 9": IDLE, "retry 3": RUNS_ON,
    },
    "nvcc latch_and_semaphore": {
        **{f"memory order {n}": ONLY_ATOMICS for n in range(7)},
        **{f"strong access made plain {n}": PRIVATE for n in range(20, 24)},
        "strong access made plain 0": GUESS,
    },
    "nvcc mma_tf32_mbarrier": {"wait group 0": LATER_WAIT},
    "nvcc splitk_semaphore": {"fence 0": REDUNDANT, "fence's scope 0": REDUNDANT, "memory order 1": REDUNDANT},
    "nvcc sm_90a bulk_1d": {"barrier 0": MEETS_LATER},
    "nvcc sm_90a dsmem_sum": {"cluster barrier's order 1": STAYS},
    "nvcc sm_90a multicast": {"cluster barrier 1": ALL_CAME, "cluster barrier's order 0": ALL_CAME},
    "nvcc sm_90a ring": {"cluster barrier's order 0": STAYS},
    "nvcc sm_90a red_async": {
        "fence of mbarrier.init 0": REDUNDANT, "cluster barrier's order 0": ALL_CAME,
        "cluster barrier's order 1": STAYS,
    },
    "nvcc sm_90a library_way": {"proxy fence 0": OWN_CTA},
    "nvcc sm_90a library_cluster": {
        "fence of mbarrier.init 0": REDUNDANT, "cluster barrier 1": ALL_CAME, "cluster barrier's order 1": ALL_CAME,
    },
    "nvcc sm_90a modified_map": {"warp barrier 0": LANES_MEET, "barrier 1": ONE_WARP},
    "nvcc sm_90a wgmma_f16": {f"barrier {n}": WARPGROUP for n in range(1, 6)},
    "nvcc sm_90a wgmma_registers": {"barrier 0": WARPGROUP},
    "nvcc sm_90a wgmma_pipelined": {
        **{f"barrier {n}": WARPGROUP for n in (1, 2)},
        "wgmma wait 4": NO_MORE_LOADS, "wgmma wait 5": NO_MORE_LOADS, "barrier 3": NO_MORE_LOADS,
        "expect_tx 3": NEVER_RUN, "arrival 3": NEVER_RUN,
        **{f"expect_tx bytes {n}": NEVER_RUN for n in (9, 10, 11)},
    },
    "nvcc sm_90a persistent": {f"barrier {n}": WARPGROUP for n in range(1, 5)},
    "nvcc sm_90a clustered": {
        "warp barrier 0": ELECTED_ENDS, "wgmma.fence 1": NOT_TOUCHED, "wgmma.fence 2": NOT_TOUCHED,
        **{f"barrier {n}": WARPGROUP for n in range(3)},
        "arrival 7": LAST_STEP, "mbarrier order 15": LAST_STEP, "cluster barrier's order 0": STAYS,
    },
    "nvcc sm_90a split_k": {f"barrier {n}": WARPGROUP for n in range(1, 6)},
    "nvcc sm_100a simple_f16": {
        **_TENSOR_MEMORY, **{f"tcgen05.fence after {n}": OPERANDS_ONLY for n in range(1, 6)},
        "warp barrier 0": ELECTED_ENDS, "mbarrier order 15": EXECUTION,
        "tcgen05.fence before 1": LOADED,
    },
    "nvcc sm_100a persistent": {
        **_TENSOR_MEMORY, **{f"tcgen05.fence after {n}": OPERANDS_ONLY for n in range(1, 5)},
        "election 0": SAME_TWICE, "election 1": SAME_TWICE,
        **{f"mbarrier order {n}": EXECUTION for n in (14, 19, 20)},
        "mbarrier wait 11": IDLE, "mbarrier order 18": IDLE,
        "barrier 3": MEETS_BEFORE,
    },
    "nvcc sm_100a pair": {
        **_TENSOR_MEMORY, **{f"tcgen05.fence after {n}": OPERANDS_ONLY for n in range(1, 4)},
        "fence of mbarrier.init 0": REDUNDANT, "barrier 0": BESIDE, "barrier 1": BESIDE,
        "cluster barrier 0": BESIDE, "cluster barrier's order 0": BESIDE,
        "cluster barrier 1": COPIES_COME, "cluster barrier's order 1": COPIES_COME,
        "tcgen05.commit 2": LAST_STEP, "multicast 2": LAST_STEP, "warp barrier 0": ELECTED_ENDS,
        "tcgen05.fence before 1": LOADED, "tcgen05.fence after 5": LOADED,
    },
    "nvcc sm_100a scaled_mxf8": {
        **_TENSOR_MEMORY, "tcgen05.commit 4": LAST_STEP,
        "warp barrier 0": ELECTED_ENDS, "mbarrier order 15": EXECUTION, "tcgen05.fence before 1": LOADED,
    },
    "nvcc sm_100a chained": {
        **_TENSOR_MEMORY, "tcgen05.fence after 1": OPERANDS_ONLY,
        "warp barrier 0": ELECTED_ENDS, "warp barrier 1": ELECTED_ENDS,
        "mbarrier order 3": EXECUTION, "mbarrier order 4": EXECUTION,
        "tcgen05.fence before 2": LOADED,
    },
    "nvcc sm_100a steal": {
        "proxy fence 0": TWICE_FENCED, "proxy fence 1": TWICE_FENCED, "atomic made plain 0": ONE_EACH,
        "scope 0": ONE_EACH,
    },
    "triton sort-i32.sm_80": {"barrier 1": MEET_ANYWAY, "barrier 5": MEET_ANYWAY, "barrier 9": MEET_ANYWAY},
    "triton histogram-64.sm_80": {"barrier 2": LAST, "barrier 3": LAST, "memory order 0": ONLY_ATOMICS},
    "triton lock.sm_80": {"barrier 2": TWICE, "barrier 3": TWICE, "barrier 4": LAST},
    "triton last_adds.sm_80": {"barrier 1": TWICE, "barrier 2": TWICE},
    "triton stream_k.sm_80": _STREAM_K | {"barrier 15": "no CTA polls twice here; the other launch catches it"},
    "triton stream_k.sm_80 waiting": _STREAM_K | {
        "barrier 4": "no CTA that finishes a tile begins another here; the other launch catches it",
    },
    "triton matmul-64x64x32w4s3.sm_80": _TRITON_MATMUL,
    "triton whole_matmul-i8-nt.sm_80": _TRITON_MATMUL,
    "triton attention-64causalw4.sm_80": {
        "commit group 0": JOINS_NEXT, "commit group 2": JOINS_NEXT,
        "wait group 2": OTHER_BUFFER, "wait group 3": OTHER_BUFFER, "barrier 2": OTHER_BUFFER,
    },
    "triton matmul-64x64x32w4s3.sm_90": {
        "commit group 0": JOINS_NEXT, "barrier 1": WARPGROUP, "wait group 3": OTHER_BUFFER, "barrier 2": OTHER_BUFFER,
    },
    "triton descriptor_matmul-64x64x64w4.sm_90": {
        **{f"warp barrier {n}": LANES_MEET for n in (1, 3, 5)},
        **{f"bulk commit {n}": NO_STORES for n in range(3)},
        **{f"bulk wait {n}": NO_STORES for n in range(6)},
        **{f"barrier {n}": ONE_WARP for n in (2, 4, 7, 8, 9, 10, 11, 12, 15, 16)},
        "barrier 3": MEETS_BEFORE, "barrier 13": WAITED_ALL, "barrier 14": WARPGROUP, "barrier 17": LAST,
        "election 3": SAME_TWICE,
    },
    "triton matmul-64x64x32w4s3.sm_100": {
        "commit group 0": JOINS_NEXT,
        **{f"barrier {n}": BOTH_SIDES for n in (2, 3, 5, 6)},
        "barrier 4": WAITED_ALL, "barrier 7": WAITED_ALL,
        "wait group 4": OTHER_BUFFER, "wait group 5": OTHER_BUFFER, "barrier 16": MEETS_BEFORE,
    },
    "triton attention-64w4.sm_100": {
        **{f"barrier {n}": BOTH_SIDES for n in (2, 3, 5, 11)},
        **{f"barrier {n}": WAITED_ALL for n in (4, 9, 10)},
        "tcgen05.wait::st 1": NEXT_WAIT, "tcgen05.wait::st 3": NEXT_WAIT,
        "tcgen05.wait::ld 0": NEXT_LOAD_WAIT, "tcgen05.wait::ld 2": NEXT_LOAD_WAIT, "barrier 25": MEETS_BEFORE,
        "barrier 6": OWN_LANES, "barrier 12": OWN_LANES,
        **{f"proxy fence {n}": NOTHING_NEW for n in (2, 4)}, **{f"barrier {n}": NOTHING_NEW for n in (8, 14)},
        "mbarrier wait 2": LATER_COMMIT, "mbarrier order 2": LATER_COMMIT, "mbarrier order 3": EXECUTION,
    },
    "triton descriptor_matmul-special64x64x64w4.sm_100": {
        **{f"warp barrier {n}": LANES_MEET for n in (1, 3, 5, 6, 7, 8, 9)},
        **{f"bulk commit {n}": NO_STORES for n in range(3)}, **{f"bulk wait {n}": NO_STORES for n in range(6)},
        **{f"barrier {n}": ONE_WARP for n in (4, 11, 12, 21, 22, 23)},
        "mbarrier wait 0": FIRST_PASS, "mbarrier order 0": FIRST_PASS,
        **{f"mbarrier order {n}": EXECUTION for n in (1, 2, 3, 4, 5)},
        "arrival 1": LAST_STEP,
        "election 10": SAME_TWICE, "proxy fence 4": SAME_PROXY, "proxy fence 5": SAME_PROXY,
        "barrier 26": NO_STATE, "barrier 27": NO_STATE, "tcgen05.dealloc 1": NO_SUCH_WARP,
    },
    "triton descriptor_matmul-special128x128x64w4.sm_90": {
        **{f"arrival count {n}": UNUSED for n in (19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63)},
        **{f"warp barrier {n}": LANES_MEET for n in (1, 3, 5, 7)},
        **{f"bulk commit {n}": NO_STORES for n in (0, 1, 2, 4)},
        **{f"bulk wait {n}": NO_STORES for n in (0, 1, 2, 3, 4, 5, 8, 9)},
        "mbarrier wait 2": BOTH_AT_ONCE, "mbarrier wait 3": BOTH_AT_ONCE,
        **{f"barrier {n}": MEETS_LATER for n in (0, 1, 2, 3, 21, 27)},
        **{f"barrier {n}": ONE_WARP for n in (7, 8, 9, 10, 11, 12, 13, 19, 25)},
        "election 36": SAME_TWICE, "election 37": SAME_TWICE,
        "barrier 16": NO_STATE, "barrier 17": NO_STATE,
        **{f"barrier {n}": WARPGROUP for n in (22, 23, 28, 29)},
    },
}  # fmt: skip
KINDS: Mapping[str, str] = {
    "grid dependency": ALONE, "register budget": BUDGET, "invalidation": NOT_REUSED, "tcgen05 permit": PERMIT,
}  # fmt: skip
"""Kinds of which every mutant computes the same here."""


def listed(subject: Subject, mutant: Mutant) -> str:
    """The reason that is listed for this mutant, or for the wait that it tries again; "" where none is."""
    return EQUIVALENT.get(subject.name, {}).get(mutant.name, "") or _as_its_wait(subject, mutant)


def proved(subject: Subject, mutant: Mutant) -> str:
    """Why a mutant is no worse than the original, by its kind or by a proof; "" where neither shows it."""
    if mutant.kind == "fence of mbarrier.init" and subject.make().options.get("cluster", 1) in (1, (1, 1, 1)):
        return OWN_CTA
    if mutant.kind == "mbarrier order" and "expect_tx" in mutant.change:
        return ARRIVAL_OF_COPIES
    if mutant.kind == "scope" and "mbarrier." in mutant.change:
        return DEFAULT_SCOPE
    return (
        KINDS.get(mutant.kind, "")
        or (SAME_TWICE if _elects_for_initialisation(subject, mutant) else "")
        or (NEVER_OTHER if mutant.probe and _never_traps(subject, mutant) else "")
        or (SAME_CODE if _same_code(subject, mutant) else "")
    )


def _as_its_wait(subject: Subject, mutant: Mutant) -> str:
    """Why an attempt may fail: it may be left out altogether."""
    if mutant.kind != "retry":
        return ""
    tried = attempt(subject.text, statements(subject.text, subject.entry), min(mutant.lines))
    line = subject.text.count("\n", 0, tried.start) + 1
    waits = [m for m in mutants(subject.text, subject.entry) if m.kind == "mbarrier wait" and line in m.lines]
    return EQUIVALENT.get(subject.name, {}).get(waits[0].name, "") if waits else ""


def _never_traps(subject: Subject, mutant: Mutant) -> bool:
    try:
        emulate(mutant.probe, entry=subject.entry, **subject.make().options)
    except EmulationFault:
        return False
    return True


def _elects_for_initialisation(subject: Subject, mutant: Mutant) -> bool:
    """Whether an elected lane does nothing but initialise and invalidate mbarriers, which all lanes may do as one."""
    if mutant.kind != "election":
        return False
    body = statements(subject.text, subject.entry)
    elected = [s for s in body if s.has("elect")][mutant.number]
    names = {elected.operands[0].split("|")[1]}
    names |= {s.operands[0] for s in body if s.name == "and.pred" and names & set(s.operands[1:])}
    guarded = [s for s in body if s.guard.strip("@! ") in names]
    plain = [s for s in body if names & set(s.operands) and s.name not in ("elect.sync", "and.pred")]
    return not plain and all(s.has("mbarrier", "init") or s.has("mbarrier", "inval") for s in guarded)


def _same_code(subject: Subject, mutant: Mutant) -> bool:
    try:
        return _code(mutant.text) == _code(subject.text)
    except AssemblerError:
        return False


@cache
def _code(text: str) -> bytes:
    target = text.split(".target", 1)[1].split()[0].rstrip(",")
    return assemble(text, target).cubin
