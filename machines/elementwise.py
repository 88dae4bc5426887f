"""Element-wise machines: any chain of functions over tensors that broadcast against each other, in one kernel."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, Scalar, Tracer, blocked, relu
from tinygpu.ptx import isa

Of = tuple[str, tuple[str, ...]]


def elementwise(
    name: str,
    chain: Callable[..., Any],
    *,
    inputs: Mapping[str, Of],
    output: Of | Mapping[str, Of],
    scalars: tuple[str, ...] = (),
    exact: bool = True,
    approximation: float = 0.0,
    doc: str = "",
) -> type[Machine]:
    """A machine that computes `y = chain(**inputs, **scalars)` element by element, in f32.

    chain          a function of the inputs and scalars by name, of Python's operators and the functions of
                   `tinygpu.language`; of several outputs it gives a dict
    inputs         name -> (dtype, dims): ("f16", ("m", "n")), or ("f16", ("n",)) for one that broadcasts
    output         (dtype, dims) of the result, which is called y; one or two dims. Or of several by name, all with the
                   same dims
    scalars        names of f32 numbers given at launch
    exact          whether small integers give exact results (no division, exp, tanh ...)
    approximation  relative error of the approximate functions in the chain

    >>> from tinygpu.language import relu
    >>> M = elementwise("BiasRelu", lambda x, b: relu(x + b),
    ...                 inputs={"x": ("f16", ("m", "n")), "b": ("f16", ("n",))}, output=("f16", ("m", "n")))
    """
    outputs = dict(output) if isinstance(output, Mapping) else {"y": output}
    dims = next(iter(outputs.values()))[1]
    if len(dims) not in (1, 2):
        raise DeclarationError(f"{name}: an element-wise machine works on one or two dims, not on {len(dims)}")
    for given, (_, named) in inputs.items():
        if not set(named) <= set(dims) or [d for d in dims if d in named] != list(named):
            raise DeclarationError(
                f"{name}: {given} has the dims {', '.join(named)}, which do not broadcast to {', '.join(dims)}"
            )
    for made, (_, named) in outputs.items():
        if named != dims:
            listed = f"{', '.join(named)}, and the first output {', '.join(dims)}"
            raise DeclarationError(f"{name}: {made} has the dims {listed}; all have the same")
    if not any(named == dims for _, named in inputs.values()):
        raise DeclarationError(f"{name}: at least one input has all the dims {', '.join(dims)}")

    def body(ns: dict[str, Any]) -> None:
        ns["__doc__"] = doc or f"{', '.join(outputs)} = {name}({', '.join((*inputs, *scalars))}), element by element"
        ns["__module__"] = __name__
        for d in dims:
            ns[d] = Dim()
        for given, (dtype, named) in inputs.items():
            ns[given] = Input(dtype, *[ns[d] for d in named])
        for s in scalars:
            ns[s] = Scalar("f32")
        for made, (dtype, named) in outputs.items():
            ns[made] = Output(dtype, *[ns[d] for d in named])
        ns["warps"], ns["vector"] = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16)
        ns["rows"] = Param(1, 2, 4, 8)  # vectors per thread, one below the other (side by side with one dim)
        ns["across"] = Param(32, 64, 128, 256, 512) if len(dims) == 2 else Param(1)
        ns["ld"], ns["ld_one"] = isa.LdGlobalReadOnly(ns["vector"]), isa.LdGlobalReadOnly(1)
        ns["st"], ns["arithmetic"] = isa.StGlobal(ns["vector"]), isa.arithmetic("f32")
        ns["exact"], ns["approximation"] = exact, approximation
        ns["program"], ns["reference"] = program, staticmethod(chain)

    def program(self: Any, p: Tracer) -> None:
        threads = self.warps * 32
        with p.grid(*_tiles(self, dims, threads)) as at, p.role("all", warps=self.warps):
            if len(dims) == 1:
                shape: tuple[Any, ...] = (threads * self.vector * self.rows,)
                who = blocked(shape, threads=threads, vector=self.vector, across=threads)
            else:
                shape = (threads // self.across * self.rows, self.across * self.vector)
                who = blocked(shape, threads=threads, vector=self.vector, across=self.across)
            values = {}
            for given, (_, named) in inputs.items():
                tensor = getattr(self, given)
                if named == dims:
                    tile = p.load(self.ld, tensor.tile(*at, shape=shape), who)
                else:
                    axis = dims.index(named[0])
                    window = tensor.row(at[1], shape[1]) if axis == 1 else tensor.column(at[0], shape[0])
                    tile = p.load(self.ld if axis == 1 else self.ld_one, window, who.along(axis))
                values[given] = p.cast(tile, "f32")
            result = chain(**values, **{s: getattr(self, s) for s in scalars})
            results = result if isinstance(result, Mapping) else {"y": result}
            for made, (dtype, _) in outputs.items():
                p.store(self.st, getattr(self, made).tile(*at, shape=shape), p.cast(results[made], dtype))

    return types.new_class(name, (Machine,), {}, body)


def _tiles(self: Any, dims: tuple[str, ...], threads: Any) -> list[tuple[Any, Any]]:
    if len(dims) == 1:
        return [(getattr(self, dims[0]), threads * self.vector * self.rows)]
    return [
        (getattr(self, dims[0]), threads // self.across * self.rows),
        (getattr(self, dims[1]), self.across * self.vector),
    ]


Axpby = elementwise(
    "Axpby",
    lambda a, x, b, z: x * a + z * b,
    inputs={"x": ("f32", ("n",)), "z": ("f32", ("n",))},
    output=("f32", ("n",)),
    scalars=("a", "b"),
    doc="y = a * x + b * z, element by element",
)

BiasRelu = elementwise(
    "BiasRelu",
    lambda x, bias: relu(x + bias),
    inputs={"x": ("f16", ("m", "n")), "bias": ("f16", ("n",))},
    output=("f16", ("m", "n")),
    doc="y = relu(x + bias): a row of biases for every row of x",
)

__all__ = ["Axpby", "BiasRelu", "elementwise"]
