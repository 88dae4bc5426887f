"""Small kernels by hand, with their launches: y[i] = x[i] + z[i] + s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.measuring.bundle import Bundle, Entry, Question, ptx_digest, write_bundle
from tinygpu.ptx.measuring.reference import record
from tinygpu.ptx.runtime.launch import Argument, Launch, Tensor, Workspace

THREADS = 64
ADD = """\
// y[i] = x[i] + z[i] + s
{comment}
.version 7.0
.target {target}
.address_size 64
{extern}
.visible .entry add(
  .param .u64 x,
  .param .u64 z,
  .param .u64 y,
  .param .f32 s,
  .param .u32 n
)
{{
  .reg .b64 %d<8>;
  .reg .b32 %r<5>;
  .reg .f32 %f<4>;
  .reg .pred %p<2>;
  ld.param.u64 %d0, [x];
  ld.param.u64 %d1, [z];
  ld.param.u64 %d2, [y];
  ld.param.f32 %f2, [s];
  ld.param.u32 %r3, [n];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r0, %r1, %r2, %r0;
  setp.ge.u32 %p0, %r0, %r3;
  @%p0 ret;
  mul.wide.u32 %d3, %r0, 4;
  add.u64 %d0, %d0, %d3;
  add.u64 %d1, %d1, %d3;
  add.u64 %d2, %d2, %d3;
  ld.global.f32 %f0, [%d0];
  ld.global.f32 %f1, [%d1];
  add.f32 %f0, %f0, %f1;
  {last}
  st.global.f32 [%d2+{offset}], %f0;
  ret;
}}
"""


def add_ptx(comment: str = "", *, last: str = "add.f32 %f0, %f0, %f2;", offset: int = 0, target: str = "sm_80") -> str:
    """The kernel; `last` and `offset` are where one is made wrong."""
    said = f"// {comment}" if comment else "//"
    return ADD.format(comment=said, target=target, extern="", last=last, offset=offset)


def vector(name: str, n: int, access: str = "in", type_: str = "f32", align_bytes: int = 16) -> Tensor:
    return Tensor(name, type_, (n,), (1,), align_bytes, access)  # type: ignore[arg-type]


def add_launch(n: int = 1000, **changed: object) -> Launch:
    arguments = (
        Argument("address", "x"), Argument("address", "z"), Argument("address", "y"), Argument("scalar", "s", "f32"),
        Argument("number", "n", "u32", n),
    )  # fmt: skip
    tensors = (vector("x", n), vector("z", n), vector("y", n, "out"))
    made = Launch("add", "sm_80", -(-n // THREADS), THREADS, 1, 0, arguments, tensors)
    return replace(made, **changed)  # type: ignore[arg-type]


def add_question(n: int = 1000) -> Question:
    graph = record(lambda x, z, s: x + z + s, ["x", "z", "s"], {}, ["y"], "Add")
    tensors = add_launch(n).tensors
    return Question(f"add of {n}", {"dims": {"n": n}}, tensors, (("s", "f32"),), graph, Rounding(True))


def add_bundle(path: Path, kernels: Mapping[str, str], n: int = 1000) -> Bundle:
    """A bundle of kernels by name; the number in a name is its candidate."""
    made = []
    for number, (name, ptx) in enumerate(kernels.items()):
        entry = Entry(name, 0, "Add", {"number": number}, add_launch(n), 1e-6, 16, 0, ptx_digest(ptx.encode()), False)
        made.append((entry, [(ptx.encode(), None)]))
    return write_bundle(
        path, title="small sums", device="H200-SXM", made="by hand", questions=[add_question(n)], kernels=made
    )


def counting_ptx(left: int) -> str:
    """The same kernel with a workspace of a number per CTA, which must be 0, is counted up, and is left as `left`."""
    ptx = add_ptx(last="add.f32 %f0, %f0, %f2;").replace("  .param .u32 n\n", "  .param .u32 n,\n  .param .u64 w\n")
    begin = "  mov.u32 %r0, %tid.x;\n"
    use = (
        "  ld.param.u64 %d4, [w];\n  mov.u32 %r1, %ctaid.x;\n  mul.wide.u32 %d5, %r1, 4;\n  add.u64 %d4, %d4, %d5;\n"
        "  mov.u32 %r0, %tid.x;\n  setp.ne.u32 %p1, %r0, 0;\n"
        "  @!%p1 ld.global.u32 %r4, [%d4];\n  @!%p1 add.u32 %r4, %r4, 1;\n  @!%p1 setp.ne.u32 %p0, %r4, 1;\n"
        f"  @!%p1 st.global.u32 [%d4], {left};\n  @%p1 setp.ne.u32 %p0, %r0, %r0;\n  @%p0 ret;\n"
    )
    return ptx.replace(begin, use + begin, 1)


def counting_launch(n: int = 1000, each: bool = False) -> Launch:
    """each: the workspace is asked for by CTA, not as a whole"""
    made = add_launch(n)
    workspace = Workspace("w", 0, True, 4) if each else Workspace("w", made.ctas * 4, True)
    return replace(made, arguments=(*made.arguments, Argument("address", "w")), workspaces=(workspace,))
