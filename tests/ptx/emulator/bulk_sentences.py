"""What is said of each mistake with bulk and tensor copies, word for word, by the name of the mistake."""

from __future__ import annotations

# The whole sentence of each, by order of text; some are found in more than one way, depending on the order.
FOUND: dict[str, tuple[tuple[str, str], ...]] = {
    "the wait for the tile is missing": (
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 20 (what completes on mbarrier "
         "0x680) may still be writing: wait for its completion first, in a phase that expects all of its bytes"),
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 20 (what completes on mbarrier "
         "0x680) wrote: wait for its completion first, in a phase that expects all of its bytes"),
    ),
    "the wait has the wrong parity": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 1 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 1 completed phases, 0 of 1 arrivals"),
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 20 (what completes on mbarrier "
         "0x680) may still be writing: wait for its completion first, in a phase that expects all of its bytes"),
    ),
    "too many bytes are expected": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 0 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 0 completed phases, 1 of 1 arrivals and waits for 16 more transaction bytes"),
    ),
    "too few bytes are expected": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 0 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 0 completed phases, 1 of 1 arrivals and has 16 transaction bytes more than "
         "were expected"),
    ),
    "bytes are expected but nobody arrives": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 0 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 0 completed phases, 0 of 1 arrivals"),
    ),
    "the mbarrier was never initialised": (
        ("mbarrier",
         "uses shared address 0x680 as an mbarrier, but no mbarrier.init has been executed there"),
    ),
    "the tile is too small for the box": (
        ("out of bounds",
         "cp.async.bulk.tensor of 512 bytes at shared address 0x400 is out of bounds: tile has 256 bytes, and this "
         "is byte 0 to 511"),
    ),
    "the tile is misaligned": (
        ("misaligned",
         "cp.async.bulk.tensor at shared address 0x440 is misaligned: it must be a multiple of 128, but the "
         "remainder is 64"),
    ),
    "the instruction has another rank": (
        ("tensor map",
         "illegal tensor copy: the tensor map has 2 dimensions, but the instruction is .3d"),
    ),
    "the parameter is no tensor map": (
        ("tensor map",
         "the 128 bytes at address 0x7c0000000000 (the kernel's parameters) are no tensor map: pass a TensorMap as "
         "the argument, or copy one there"),
    ),
    "the tensor reaches beyond its array": (
        ("out of bounds",
         "cp.async.bulk.tensor of 16 bytes at global address 0x100000000200 is out of bounds: tm has 512 bytes, and"
         " this is byte 512 to 527 of it"),
    ),
    "the fence of the writers is missing": (
        ("race",
         "reads through the asynchronous proxy 16 bytes at shared address 0x400 that warp 0 wrote through the "
         "generic proxy on line 23, without fence.proxy.async between the two: the writing threads must execute "
         "fence.proxy.async after their stores, before the barrier"),
    ),
    "the barrier after the fence is missing": (
        ("race",
         "reads 16 bytes at shared address 0x600 that warp 1 wrote on line 23, and no barrier orders the two: put "
         "bar.sync between them"),
    ),
    "a store starts before the tensor": (
        ("tensor map",
         "illegal tensor copy: the box starts at (0, -2), but a store takes no negative coordinates"),
    ),
    "the array cannot be written": (
        ("read-only",
         "store to tm, whose array is not writeable"),
    ),
    "shared memory is used again too early": (
        ("race",
         "overwrites 4 bytes at shared address 0x410 that asynchronous work on line 31 (a bulk copy that warp 0 "
         "issued) may still be reading: wait for its completion, and order the wait before this write"),
    ),
    "the result is read before it is complete": (
        ("race",
         "reads 4 bytes at byte 16 of y (global address 0x102000000010) that warp 0 of the same CTA may still be "
         "writing by a bulk copy on line 31, and nothing orders the two: the thread that issued it must wait for it "
         "(cp.async.bulk.wait_group), and a barrier must follow"),
    ),
    "the groups that are waited for are too few": (
        ("race",
         "reads 4 bytes at byte 16 of y (global address 0x102000000010) that warp 0 of the same CTA may still be "
         "writing by a bulk copy on line 31, and nothing orders the two: the thread that issued it must wait for it "
         "(cp.async.bulk.wait_group), and a barrier must follow"),
    ),
    "the copies are not committed before the wait": (
        ("race",
         "reads 4 bytes at byte 16 of y (global address 0x102000000010) that warp 0 of the same CTA may still be "
         "writing by a bulk copy on line 31, and nothing orders the two: the thread that issued it must wait for it "
         "(cp.async.bulk.wait_group), and a barrier must follow"),
    ),
    "the source changes while it is read": (
        ("race",
         "reads byte 16 of x (global address 0x100000000010) that warp 0 of the same CTA wrote on line 23, and nothing "
         "orders the two: wait for its completion, and put a barrier between"),
    ),
    "a second load overwrites a tile that is still being loaded": (
        ("race",
         "writes 16 bytes at shared address 0x400 that asynchronous work on line 24 (what completes on mbarrier "
         "0x580) may still be writing: wait for its completion first, in a phase that expects all of its bytes"),
        ("race",
         "writes 16 bytes at shared address 0x400 that asynchronous work on line 24 (what completes on mbarrier "
         "0x580) wrote: wait for its completion first, in a phase that expects all of its bytes"),
    ),
    "the CTA exits while its memory is written": (
        ("asynchronous copy",
         "this CTA exits, but the copy of line 19 may still write into its shared memory: some thread of the CTA "
         "must wait for its mbarrier before the exit"),
    ),
    "the size is no multiple of 16": (
        ("asynchronous copy",
         "cp.async.bulk of 248 bytes: the size must be a multiple of 16"),
    ),
    "the source is misaligned": (
        ("misaligned",
         "cp.async.bulk of 256 bytes at global address 0x100000000008 is misaligned: it must be a multiple of 16, "
         "but the remainder is 8"),
    ),
    "the source ends before the copy": (
        ("out of bounds",
         "cp.async.bulk of 16 bytes at global address 0x1000000000f0 is out of bounds: x has 250 bytes, and this is"
         " byte 240 to 255 of it"),
    ),
    "the destination in shared memory is too small": (
        ("out of bounds",
         "cp.async.bulk of 256 bytes at shared address 0x400 is out of bounds: tile has 240 bytes, and this is byte"
         " 0 to 255"),
    ),
    "the destination in shared memory is misaligned": (
        ("misaligned",
         "cp.async.bulk at shared address 0x408 is misaligned: it must be a multiple of 16, but the remainder is 8"),
    ),
    "a part of what is stored was never written": (
        ("uninitialised",
         "cp.async.bulk stores 16 bytes at shared address 0x500 to global memory, but they were never initialised: "
         "write them first, or copy less"),
    ),
    "a coordinate was never set": (
        ("uninitialised",
         "%r60 is a coordinate of a tensor copy, but it holds a value that was never initialised: give it a value "
         "on every path to here"),
    ),
    "the tensor map lies in shared memory": (
        ("tensor map",
         "the tensor map at generic address 0x7f0000000400 lies in shared memory, but it must be a kernel parameter"
         " (__grid_constant__) or lie in constant or global memory"),
    ),
    "a reduction of elements that have none": (
        ("tensor map",
         "cp.reduce.async.bulk.tensor.add has no form for elements of type u8"),
    ),
    "the map is used without an acquire": (
        ("race",
         "uses the tensor map at global address 0x102000000000 (table), which was changed in this launch, without a"
         " proxy fence between: it was written on line 45, and fence.proxy.tensormap::generic.acquire on its address "
         "must come between"),
    ),
    "the map is used without a release": (
        ("race",
         "uses the tensor map at global address 0x100000000000 (table), which was changed in this launch, without a"
         " proxy fence between: it was written on line 19, and the writer must execute "
         "fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy)"),
    ),
    "a field of the map is illegal": (
        ("tensor map",
         "the tensor map at address 0x102000000000 is illegal: element_strides[1] is 9, but an element stride is 1 "
         "to 8"),
    ),
    "the map is changed from bytes that are none": (
        ("tensor map",
         "tensormap.replace on 128 bytes that are no tensor map: copy one there first, or zeros"),
    ),
    "the map is misaligned": (
        ("misaligned",
         "the tensor map at address 0x100000000020 is misaligned: it must be a multiple of 64, but the remainder is"
         " 32"),
    ),
    "multicast to more CTAs than the cluster has": (
        ("cluster",
         "multicast to CTAs 0x7 (one bit each) of a cluster that has 2: only the low 2 bits may be set"),
    ),
    "multicast before the other CTA's barrier is ready": (
        ("race",
         "uses mbarrier 0x880, which warp 0 of the cluster's CTA 1 initialised on line 12, and nothing orders the "
         "two: fence.mbarrier_init.release.cluster and a cluster barrier must lie between them"),
    ),
    "every CTA expects its own part only": (
        ("race",
         "reads 16 bytes at shared address 0x600 that asynchronous work on line 29 (what completes on mbarrier "
         "0x880) may still be writing: wait for its completion first, in a phase that expects all of its bytes"),
        ("race",
         "reads 16 bytes at shared address 0x600 that asynchronous work on line 29 (what completes on mbarrier "
         "0x880) wrote: wait for its completion first, in a phase that expects all of its bytes"),
    ),
    "the load completes on another CTA's barrier": (
        ("mbarrier",
         "cp.async.bulk into the shared memory of the cluster's CTA 1 completes on an mbarrier of CTA 0: both must "
         "lie in the same CTA"),
    ),
    "the inbox is read before the copy came": (
        ("race",
         "reads 16 bytes at shared address 0x800 that asynchronous work on line 49 (what completes on mbarrier "
         "0x980) may still be writing: wait for its completion first, in a phase that expects all of its bytes"),
        ("race",
         "reads 16 bytes at shared address 0x800 that asynchronous work on line 49 (what completes on mbarrier "
         "0x980) wrote: wait for its completion first, in a phase that expects all of its bytes"),
    ),
    "the other CTA's stores are not waited for": (
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 35 (what completes on mbarrier "
         "0x500) may still be writing: wait for its completion first, in a phase that expects all of its bytes"),
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 35 (what completes on mbarrier "
         "0x500) wrote: wait for its completion first, in a phase that expects all of its bytes"),
    ),
}  # fmt: skip
