"""Results of CTAs go to others of their cluster: left in shared memory at home, a barrier, and read there by all.

Each CTA has two places for them and uses them by turns. Who leaves something in one of them has passed the cluster's
barrier of the other, and so have all CTAs: what was left there before has been read. At its end every CTA waits for the
others, which may still read what it left (`roles`).
"""

from __future__ import annotations

from tinygpu.program import nodes as n
from tinygpu.program.exchanged import OfCluster, of_cluster
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.digits import guarded, in_bytes
from tinygpu.ptx.lowering.merging import Value, merged, unworded, words
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
    theirs = [context.cluster_rank_of({s.cluster: rank}) for rank in range(int(s.ctas))]
    places = [emit.new("r") for _ in theirs]
    for there, rank in zip(places, theirs, strict=True):
        emit.line(f"mapa.shared::cluster.u32 {there}, {mine}, {rank};")
    return [_gathered(context, s, by, number, list(map(str, places))) for number in range(len(results))]


def _gathered(context: Context, s: n.Reduce, by: OfCluster, number: int, places: list[str]) -> Value:
    values = []
    for there in places:
        got = [str(context.emit.new("r")) for _ in range(by.words)]
        for place, word in enumerate(got):
            context.emit.line(f"ld.shared::cluster.b32 {word}, [{there}+{by.offset(number, place)}];")
        values.append(unworded(context, s.merge, got))
    first, *others = values
    for other in others:
        first = merged(context, s.merge, first, other)
    return first

