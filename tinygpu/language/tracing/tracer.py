"""Tracing: runs a machine's `program` once per structure and writes down what it does.

The object that `program` receives has one verb per statement of `tinygpu.program.nodes`. Verbs check at once that an
instruction fits its operands (memory, dtype, partition), and collect the constraints that instructions and memories
bring. Mistakes raise `DeclarationError` with the machine, the attribute and the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.language.tracing.passes import Passing
from tinygpu.language.tracing.scanning import Scanning
from tinygpu.program import nodes as n
from tinygpu.program.tree import places
from tinygpu.users_code import at


@dataclass(slots=True, eq=False)
class Tracer(Passing, Scanning):
    """What `program` is given: a verb for every statement, each written down for one structure of the machine."""

    def finish(self) -> tuple[n.Grid, tuple[n.Statement, ...]]:
        if self.grid_node is None:
            raise self.fail("the program opens no grid; begin with `with p.grid(...)`")
        if not self.roles:
            raise self.fail("no warps do anything; open `with p.role(...)` inside the grid")
        if self.grid_node.scheduler.shares and self.divided is None:
            who = self.grid_node.scheduler.sharers
            raise self.fail(f"{who}, and they divide no loop; write p.loop(..., divided=True)")
        for value, what in self.unused.items():
            raise at(self.fail(f"{what} (%{value}) is never used; store it, or leave it out"), self.places[value])
        self._check_combined(self.bodies[0])
        self._check_clusters(tuple(self.bodies[0]))
        if self.link is not None:
            self.link.trace = None
        return self.grid_node, tuple(self.bodies[0])

    def _check_clusters(self, body: tuple[n.Statement, ...]) -> None:
        """Where the CTAs of a cluster wait for each other, all threads of all of them get, equally often."""
        known = {p.name for p in self.machine.params()} | set(self.machine.dim_names())
        for place in places(body):
            s = place.statement
            if s.meets_ctas.same(1):
                continue
            if len(self.roles) > 1:
                said = "all threads of the CTAs meet, and the CTA has several roles"
                raise self.fail(f"{s.headline(frozenset())}: {said}")
            for block in (block for block, _ in place.around):
                counted = block.trips.symbols if isinstance(block, n.Repeated) else frozenset()
                own = sorted(name for name in counted - known if "." not in name)
                if own or block.taken_where is not None:
                    why = f"as often as {own[0]} says" if own else "in a branch"
                    said = f"the CTAs of a cluster meet equally often, and this is {why}"
                    raise self.fail(f"{s.headline(frozenset())}: {said}")
