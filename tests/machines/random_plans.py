"""Random plans: steps of small machines over random tensors, wired at random, with what they make in NumPy."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    InOut,
    Input,
    Machine,
    Output,
    Param,
    Plan,
    Scalar,
    Step,
    Workspace,
    blocked,
    ceil_div,
)
from tinygpu.ptx import isa


class _Rows(Machine):
    """What the machines here have in common: tiles of whole warps along rows."""

    m, n = Dim(), Dim()
    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, st_one, shfl = isa.LdGlobal(vector), isa.StGlobal(vector), isa.StGlobal(1), isa.ShflBfly()
    ld_one, add, sub, mul, larger = isa.LdGlobal(1), isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32"), isa.Max("f32")

    def tile(self) -> tuple[tuple[Any, Any], Any]:
        shape = (self.warps, 32 * self.vector)
        return shape, blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)


class Scaled(_Rows):
    """y = a x"""

    a = Scalar("f32")
    x, y = Input("f32", _Rows.m, _Rows.n), Output("f32", _Rows.m, _Rows.n)

    def program(self, p: Any) -> None:
        shape, who = self.tile()
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.mul, x, self.a))

    @staticmethod
    def reference(a: Any, x: Any) -> Any:
        return a * x


class Joined(_Rows):
    """y = x - z"""

    x, z, y = (
        Input("f32", _Rows.m, _Rows.n),
        Input("f32", _Rows.m, _Rows.n),
        Output("f32", _Rows.m, _Rows.n),
    )

    def program(self, p: Any) -> None:
        shape, who = self.tile()
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            z = p.load(self.ld, self.z.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.sub, x, z))

    @staticmethod
    def reference(x: Any, z: Any) -> Any:
        return x - z


class Added(_Rows):
    """y += x"""

    x, y = Input("f32", _Rows.m, _Rows.n), InOut("f32", _Rows.m, _Rows.n)

    def program(self, p: Any) -> None:
        shape, who = self.tile()
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            y = p.load(self.ld, self.y.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.add, x, y))

    @staticmethod
    def reference(x: Any, y: Any) -> Any:
        return x + y


class RowMaximum(_Rows):
    """v = the largest of each row"""

    x, v = Input("f32", _Rows.m, _Rows.n), Output("f32", _Rows.m)

    def program(self, p: Any) -> None:
        shape, who = self.tile()
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            top = p.full(who.along(0), "f32", -3e38)
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-3e38)
                p.apply(self.larger, top, p.reduce(self.larger, x, axis=1, by=self.shfl), into=top)
            p.store(self.st_one, self.v.column(i, shape[0]), top)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.max(axis=1)


class Shifted(_Rows):
    """y = x + v, row by row"""

    x, v, y = Input("f32", _Rows.m, _Rows.n), Input("f32", _Rows.m), Output("f32", _Rows.m, _Rows.n)

    def program(self, p: Any) -> None:
        shape, who = self.tile()
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            v = p.load(self.ld_one, self.v.column(i, shape[0]), who.along(0))
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.add, x, v))

    @staticmethod
    def reference(x: Any, v: Any) -> Any:
        return x + v[:, None]


class PartSums(_Rows):
    """v[p] = sum of the rows of part p, of `height` rows each"""

    parts = Dim()
    height = Param(1, 2, 8, 32)
    x, v = Input("f32", _Rows.m, _Rows.n), Output("f32", parts, _Rows.n)

    def program(self, p: Any) -> None:
        width = 32 * self.warps * self.vector
        who = blocked((1, width), threads=32 * self.warps, vector=self.vector, across=32 * self.warps)
        with p.grid((self.parts, 1), (self.n, width)) as (part, j), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.height) as i:
                x = p.load(self.ld, self.x.tile(part * self.height + i, j, shape=(1, width)), who)
                p.apply(self.add, total, x, into=total)
            p.store(self.st, self.v.tile(part, j, shape=(1, width)), total)

    @staticmethod
    def reference(x: Any, parts: int, height: int) -> Any:
        return np.stack([x[p * height : (p + 1) * height].sum(axis=0) for p in range(parts)])


class ColumnSum(_Rows):
    """v = the sum of each column"""

    x, v = Input("f32", _Rows.m, _Rows.n), Output("f32", _Rows.n)

    def program(self, p: Any) -> None:
        width = 32 * self.warps * self.vector
        who = blocked((1, width), threads=32 * self.warps, vector=self.vector, across=32 * self.warps)
        with p.grid((self.n, width)) as (j,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.m) as i:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=(1, width)), who), into=total)
            p.store(self.st, self.v.row(j, width), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=0)


@dataclass(frozen=True)
class Wire:
    """A step: its machine, and the names of the plan that its machine's tensors stand for."""

    name: str
    machine: type[Machine]
    tensors: Mapping[str, str]

    def access(self, own: str) -> str:
        return next(t.access for t in self.machine.tensor_declarations() if t.name == own)


@dataclass(frozen=True)
class Sketch:
    """A plan before it is declared: its steps, and what each of its tensors is.

    kinds  name -> "mn", "m" and "n" (one number for each row or column), "pn" (one row for each part)
    """

    wires: tuple[Wire, ...]
    kinds: Mapping[str, str]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ("x", "z")

    def declared(self) -> type[Plan]:
        """Raises DeclarationError where the wiring is wrong."""

        def body(space: dict[str, Any]) -> None:
            m, n, a, height = Dim(), Dim(), Scalar("f32"), Param(2, 8)
            space["m"], space["n"] = m, n
            dims: dict[str, tuple[Any, ...]] = {"mn": (m, n), "m": (m,), "n": (n,)}
            made: dict[str, Any] = {}
            if any(w.machine is Scaled for w in self.wires):
                space["a"] = a
            if "pn" in self.kinds.values():
                space["height"] = height
                dims["pn"] = (ceil_div(m, height), n)
            for name in self.inputs:
                space[name] = made[name] = Input("f32", *dims[self.kinds[name]])
            for name, kind in self.kinds.items():
                if name in self.outputs:
                    space[name] = made[name] = Output("f32", *dims[kind])
                elif name not in self.inputs:
                    space[name] = made[name] = Workspace("f32", *dims[kind])
            for wire in self.wires:
                given: dict[str, Any] = {own: made[name] for own, name in wire.tensors.items()}
                if wire.machine is Scaled:
                    given["a"] = a
                if wire.machine is PartSums:
                    given["height"] = height
                space[wire.name] = Step(wire.machine, **given)
            space["reference"] = staticmethod(self.reference())

        return types.new_class("Random", (Plan,), {}, body)

    def reference(self) -> Callable[..., Any]:
        """What the steps make, one after another, in NumPy."""

        def run(**given: Any) -> Any:
            known = dict(given)
            for wire in self.wires:
                arguments = {own: known[name] for own, name in wire.tensors.items() if wire.access(own) != "out"}
                if wire.machine is Scaled:
                    arguments["a"] = given["a"]
                if wire.machine is PartSums:  # one part or several: their sum is the same
                    arguments |= {"parts": 1, "height": len(arguments["x"])}
                (out,) = [name for own, name in wire.tensors.items() if wire.access(own) != "in"]
                known[out] = wire.machine.reference(**arguments)
            return {name: known[name] for name in self.outputs}

        return run

    def fault(self) -> str:
        """What is wrong with the wiring, found by going through it with nothing in its tensors; "" for nothing."""
        full, unread = set(self.inputs), set[str]()
        used: set[str] = set()
        for wire in self.wires:
            reads = {name for own, name in wire.tensors.items() if wire.access(own) != "out"}
            (writes,) = {name for own, name in wire.tensors.items() if wire.access(own) != "in"}
            others = [name for own, name in wire.tensors.items() if wire.access(own) == "in"]
            if writes in others:
                return "race"
            if not reads <= full:
                return "unwritten"
            if writes in self.inputs:
                return "input"
            unread -= reads
            used |= reads
            if writes in unread:
                return "lost"
            full.add(writes)
            unread.add(writes)
        left = unread - set(self.outputs)
        if left or not set(self.outputs) <= full or not set(self.inputs) <= used:
            return "left"
        return "" if set(self.kinds) <= full | set(self.inputs) else "left"


def sketch(rng: np.random.Generator) -> Sketch:
    """Two to five steps; what nobody has read yet is read first, so that the wiring is right."""
    kinds = {"x": "mn", "z": "mn"}
    unread = ["x", "z"]
    wires: list[Wire] = []

    def fresh(kind: str) -> str:
        name = f"w{len(wires)}"
        kinds[name] = kind
        return name

    def pick(kind: str) -> str:
        waiting = [name for name in unread if kinds[name] == kind]
        name = str(rng.choice(waiting or [n for n, k in kinds.items() if k == kind]))
        if name in unread:
            unread.remove(name)
        return name

    def step(machine: type[Machine], kind: str, *sources: tuple[str, str]) -> None:
        tensors = {own: pick(of) for own, of in sources}
        out = {"Added": "y", "RowMaximum": "v"}.get(machine.__name__, "y")
        if machine is Added:
            written = [n for n, k in kinds.items() if k == "mn" and n.startswith("w") and n != tensors["x"]]
            if not written:
                machine, out = Scaled, "y"
            else:
                tensors["y"] = str(rng.choice(written))
                if tensors["y"] in unread:
                    unread.remove(tensors["y"])
                unread.append(tensors["y"])
                wires.append(Wire(f"s{len(wires)}", machine, tensors))
                return
        tensors[out] = fresh(kind)
        wires.append(Wire(f"s{len(wires)}", machine, tensors))
        unread.append(tensors[out])

    for _ in range(int(rng.integers(1, 4))):
        choice = int(rng.integers(5))
        if choice == 0:
            step(Scaled, "mn", ("x", "mn"))
        elif choice == 1:
            step(Joined, "mn", ("x", "mn"), ("z", "mn"))
        elif choice == 2:
            step(Added, "mn", ("x", "mn"))
        elif choice == 3:
            step(RowMaximum, "m", ("x", "mn"))
        elif "m" in kinds.values():
            step(Shifted, "mn", ("x", "mn"), ("v", "m"))
        else:
            step(Scaled, "mn", ("x", "mn"))
    # what is left over comes together in the last steps
    while len([n for n in unread if kinds[n] == "m"]):
        step(Shifted, "mn", ("x", "mn"), ("v", "m"))
    while len(unread) > 1 or unread[0] in ("x", "z"):
        if len(unread) > 1:
            step(Joined, "mn", ("x", "mn"), ("z", "mn"))
        else:
            step(Scaled, "mn", ("x", "mn"))
    if rng.integers(3) == 0:  # sums of parts, and the same machine once more over them is the plan's output
        last = unread[0]
        kinds["sums"] = "pn"
        wires.append(Wire("sums_of_parts", PartSums, {"x": last, "v": "sums"}))
        kinds["y"] = "n"
        wires.append(Wire("total", ColumnSum, {"x": "sums", "v": "y"}))
        return Sketch(tuple(wires), kinds, ("y",))
    renamed = {unread[0]: "y"}
    kinds = {renamed.get(n, n): k for n, k in kinds.items()}
    final = tuple(
        Wire(w.name, w.machine, {own: renamed.get(n, n) for own, n in w.tensors.items()}) for w in wires
    )
    return Sketch(final, kinds, ("y",))
