"""Tiles that running clusters take over from clusters of the launch that have not begun (cluster launch control).

As many clusters are launched as there is work for, each for one item. A cluster that runs asks for another one that has
not begun: where there is one, it never begins, and its item is the next of the cluster that asked. So whoever is done
first goes on first, however long each item takes and however many SMs the launch gets; nobody knows beforehand who
takes what.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, any_of, expr, symbol
from tinygpu.schedulers.launch_rule import LaunchRule
from tinygpu.schedulers.run_time import RunTime
from tinygpu.schedulers.scheduler import Sharing, TileScheduler
from tinygpu.schedulers.sliced import Sliced, SlicedWalk, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK

# Answers that a cluster has room for: the one that is asked for, the one by which the first of its roles goes on, and
# one that the last of them has not read yet, which stores a tile while the next is multiplied and one more is brought.
ANSWERS = 3


@dataclass(frozen=True, slots=True, eq=False)
class TakenOver(Sliced):
    """The slices of tiles, one cluster launched for each; a cluster goes on to those of clusters it takes over."""

    @property
    def title(self) -> str:
        return f" launch control{'' if self.slices.same(1) else f'; {self.slices} slices of each tile'}"

    @property
    def persistent(self) -> bool:
        return True

    @property
    def takes_over(self) -> bool:
        return True

    @property
    def answers(self) -> Expr:
        return expr(ANSWERS)

    @property
    def launch_rule(self) -> LaunchRule:
        return LaunchRule(False, int(self.slices))

    def walk(self, run: RunTime, share: tuple[int, int]) -> SlicedWalk:
        return SlicedWalk(run.own(), slices=int(self.slices))


@dataclass(frozen=True, slots=True, eq=False)
class LaunchControl(TileScheduler):
    """Clusters take each other over where `on` is 1; where it is 0, as `otherwise` says.

    cluster  CTAs of a cluster
    """

    on: Expr
    otherwise: TileScheduler
    cluster: Expr

    @property
    def title(self) -> str:
        return f"{self.otherwise.title}; launch control: {self.on}"

    @property
    def persistent(self) -> bool:
        return self.otherwise.persistent

    @property
    def takes_over(self) -> bool:
        return True

    @property
    def answers(self) -> Expr:
        return self.on * ANSWERS

    @property
    def slices(self) -> Expr:
        return self.otherwise.slices

    @property
    def shares(self) -> bool:
        return self.otherwise.shares

    @property
    def sharers(self) -> str:
        return self.otherwise.sharers

    @property
    def writers(self) -> str:
        return self.otherwise.writers

    @property
    def deals_rounds(self) -> bool:
        return self.otherwise.deals_rounds

    def settled(self) -> TileScheduler:
        if not int(self.on):
            return self.otherwise.settled()
        if self.otherwise.settled().deals_rounds:
            raise ValueError(
                "clusters take over whole tiles, or share them by rounds in a row, not both: launch_control is 1, and "
                "stream_k is 1"
            )
        return TakenOver(self.slices)

    def refusal(self) -> str:
        static = self.otherwise.otherwise if isinstance(self.otherwise, StreamK) else self.otherwise
        if not isinstance(static, StaticPersistent):
            return (
                "launch control is for CTAs that take tile after tile; open the grid with persistent=True"
            )
        return self.otherwise.refusal()

    def conditions(self) -> tuple[Constraint, ...]:
        values = any_of([self.on == v for v in (0, 1)])
        cc = symbol("device.cc")
        out = [
            Constraint("launch_control", values, "launch_control is 0 or 1", source="partition", judge="emulator"),
            Constraint(
                "launch control target",
                (self.on == 0) | (cc >= 100),
                "clusterlaunchcontrol, by which clusters take each other over, exists from sm_100 on",
                source="grid",
                judge="assembler",
                why="PTX ISA, clusterlaunchcontrol.try_cancel",
            ),
        ]
        if not self.cluster.same(1):
            out.append(
                Constraint(
                    "launch control of clusters",
                    (self.on == 0) | (self.cluster == 1) | (cc == 100) | (cc == 103),
                    "an answer goes to all CTAs of a cluster on sm_100 and sm_103 only",
                    source="grid",
                    judge="assembler",
                    why="PTX ISA, clusterlaunchcontrol.try_cancel: .multicast::cluster::all is of a family's targets, "
                    "and kernels of clusters are written for sm_100f",
                )
            )
        if isinstance(self.otherwise, StreamK):
            either = (self.on == 0) | (self.otherwise.on == 0)
            sentence = "clusters take over whole tiles, or share them by rounds in a row"
            out.append(
                Constraint("launch control or stream-K", either, sentence, source="partition", judge="emulator")
            )
        return (*out, *self.otherwise.conditions())

    def constraints(self, rounds: Expr) -> tuple[Constraint, ...]:
        return self.otherwise.constraints(rounds)

    @property
    def even(self) -> Expr:
        return self.otherwise.even

    def sharing(self, tiles: Expr, cluster: Expr) -> tuple[Sharing, ...]:
        return self.otherwise.sharing(tiles, cluster)

    @property
    def places(self) -> tuple[int, int]:
        return self.settled().places

    @property
    def launch_rule(self) -> LaunchRule:
        return self.settled().launch_rule

    def walk(self, run: RunTime, share: tuple[int, int]) -> SlicedWalk:
        raise NotImplementedError("which tiles a cluster takes is known once launch_control is a number: settle it")
