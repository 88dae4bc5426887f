"""Results of CTAs go to others of their cluster: left in shared memory at home, a barrier, and read there by all.

Each CTA has two places for them and uses them by turns. Who leaves something in one of them has passed the cluster's
barrier of the other, and so have all CTAs: what was left there before has been read. At its end every CTA waits for the
others, which may still read what it left (`roles`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.program import nodes as n
from tinygpu.program.exchanged import OfCluster, of_cluster
from tinygpu.ptx.lowering.broadcast import broadcast
from tinygpu.ptx.lowering.compute import number_operand, partition_of
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.digits import guarded, in_bytes
from tinygpu.ptx.lowering.merging import Value, chosen, keep, merged, replaced, unworded, values_of, words
from tinygpu.ptx.lowering.sync import MeetCluster
from tinygpu.ptx.lowering.sync_text import issue


def begin(context: Context) -> None:
    """Which of its two places the CTA uses."""
    if context.placement.of_cluster[1]:
        context.cluster_turn = context.emit.new("r", 0)
        context.emit.line(f"mov.u32 {context.cluster_turn}, 0;")


def combined(context: Context, s: n.Reduce, results: list[Value]) -> list[Value]:
    """What the CTAs of a cluster have together, combined by each of them in the order of their ranks."""
    if s.cluster is None or int(s.ctas) == 1:
        return results
    out = []
    for first, *others in _taken(context, s, s.cluster, results):
        for other in others:
            first = merged(context, s.merge, first, other)
        out.append(first)
    return out


def write_preceding(context: Context, s: n.PrecedingInCluster) -> None:
    """Each CTA combines what all have, in the order of their ranks, and keeps what it finds before its own rank."""
    emit, ctas = context.emit, int(s.ctas)
    emit.comment(s.headline(frozenset()))
    own, order = values_of(context, s.sources), list[int]()
    of = zip(s.merge.identity, s.sources, strict=not s.carries)
    starts: list[Value] = [[number_operand(context, number, t.dtype.name) for number, t in of]] * len(own)
    if s.carries:
        carried = values_of(context, s.carries)
        order = broadcast(partition_of(s.carries[0]), partition_of(s.sources[0]), s.carries[0].name).tolist()
        starts = [carried[place] for place in order]
    taken = _taken(context, s, s.cluster, own) if ctas > 1 else iter([value] for value in own)
    rank = context.cluster_rank(s.cluster) if ctas > 1 else 0
    before, after = [], []
    for start, theirs in zip(starts, taken, strict=True):
        mine = together = start
        for number, value in enumerate(theirs if ctas > 1 or s.carries else ()):
            together = merged(context, s.merge, together, value) if number or s.carries else value
            if number + 1 < ctas:
                behind = emit.computed("p", f"setp.gt.u32 {{d}}, {{0}}, {number};", rank)
                mine = chosen(context, s.merge, together, mine, behind)
        before.append(mine)
        after.append(together)
    keep(context, s.results, before)
    if s.carries:
        replaced(context, s.carries, [after[order.index(place)] for place in range(len(set(order)))])


def _taken(
    context: Context, s: n.Reduce | n.PrecedingInCluster, axis: int, results: list[Value]
) -> Iterator[list[Value]]:
    """Leaves results for the others of the cluster; of each what these have left, in the order of their ranks."""
    emit, by = context.emit, of_cluster(s)
    if context.cluster_turn is None:
        raise LoweringError("nothing is placed that CTAs exchange")
    offset, size = context.placement.of_cluster
    emit.line(f"xor.b32 {context.cluster_turn}, {context.cluster_turn}, {size};")
    mine = emit.new("r")
    start = emit.add(emit.add(context.arguments["smem"], offset), in_bytes(context, by.left))
    emit.line(f"add.u32 {mine}, {context.cluster_turn}, {start};")
    guard = guarded(context, by.first, by.threads)
    for number, value in enumerate(results):
        for place, word in enumerate(words(context, s.merge, value)):
            emit.line(f"{guard}st.shared.b32 [{mine}+{by.offset(number, place)}], {word};")
    issue(context, MeetCluster(aligned=True))
    theirs = [context.cluster_rank_of({axis: rank}) for rank in range(by.ctas)]
    places = [emit.new("r") for _ in theirs]
    for there, rank in zip(places, theirs, strict=True):
        emit.line(f"mapa.shared::cluster.u32 {there}, {mine}, {rank};")
    for number in range(len(results)):
        yield [_gathered(context, s, by, number, str(there)) for there in places]


def _gathered(
    context: Context, s: n.Reduce | n.PrecedingInCluster, by: OfCluster, number: int, there: str
) -> Value:
    got = [str(context.emit.new("r")) for _ in range(by.words)]
    for place, word in enumerate(got):
        context.emit.line(f"ld.shared::cluster.b32 {word}, [{there}+{by.offset(number, place)}];")
    return unworded(context, s.merge, got)
