"""The page of one machine, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tinygpu.api.layouts import Layouts
from tinygpu.api.machines import machines_of
from tinygpu.api.pages.account import Account, OnDevice
from tinygpu.api.pages.source import source_of
from tinygpu.api.pages.typical import shape_argument
from tinygpu.language.declared import Declared
from tinygpu.language.plan import Plan
from tinygpu.language.step import Step
from tinygpu.language.tensors import TensorDeclaration
from tinygpu.program.layouts import BufferLayout
from tinygpu.ptx.cards.collect import cards

# Pictures of layouts that are shown at once; more are folded.
OPEN_PICTURES = 4
CARDS = frozenset(card.name for card in cards())
SPACE = "&nbsp;"  # at which no line ends
BAR = 20  # characters of a whole roofline


def page(a: Account) -> str:
    """Everything about one machine: what it is, its space, its times, its program, its layouts, a kernel."""
    return "\n\n".join(part.rstrip() for part in (head(a), *_worked_out(a))) + "\n"


def head(a: Account) -> str:
    """What the class and its file say: nothing of it is worked out."""
    return "\n\n".join([_title(a), _declaration(a), _program(a)])


def _worked_out(a: Account) -> Iterator[str]:
    yield _built_of(a)
    yield _space(a)
    yield _times(a)
    yield _layouts(a)
    yield _kernel(a)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table; `right` are the columns of numbers."""
    ruler = ["---:" if i in right else "---" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ruler, *rows))


def plain(text: str) -> str:
    """Text that Markdown takes as it is, in a cell."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace("\n", " ")


def code(text: object) -> str:
    return f"`{str(text).replace('|', chr(92) + '|')}`"


def folded(title: str, body: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"


def microseconds(seconds: float) -> str:
    us = seconds * 1e6
    return f"{us:,.0f}{SPACE}us" if us >= 1000 else f"{us:,.1f}{SPACE}us"


def percent(share: float) -> str:
    return f"{100 * share:.0f}{SPACE}%"


def bar(share: float) -> str:
    """A share as a line of blocks."""
    full = min(BAR, round(share * BAR))
    return f"`{'█' * full}{'░' * (BAR - full)}`"


# -- what the class says -------------------------------------------------------------------------------------------


def _title(a: Account) -> str:
    first, *rest = a.source.told.split("\n", 1)
    told = "".join(rest).strip()
    written = f"[`machines/{a.source.file}`](../../machines/{a.source.file})"
    title = [f"# {a.name}", "", f"**{plain(a.machine.summary())}**", "", "[All machines](README.md)"]
    lines = [*title, "", f"{written}: {told_as(first)}"]
    return "\n".join([*lines, *(["", told_as(told)] if told else []), "", _facts(a)])


def told_as(text: str) -> str:
    """A docstring, in which a star is no emphasis; of code as it is."""
    parts = text.split("`")
    return "`".join(part.replace("*", "\\*") if i % 2 == 0 else part for i, part in enumerate(parts))


def _facts(a: Account) -> str:
    m = a.machine
    followed = {d.name for d in m.following_dims()}
    dims = [f"{n} ({' or '.join(map(str, v))})" if v else f"{n}, which follows" if n in followed else n
            for n, v in m.dim_values().items()]  # fmt: skip
    rows = [("dims", "; ".join(dims))]
    rows += [(code(t.name), _tensor(t)) for t in m.tensor_declarations()]
    rows += [(code(s.name), f"a scalar, {s.dtype}") for s in m.scalar_declarations()]
    for o in m.option_declarations():
        rows.append((f"option {code(o.name)}", ", ".join(map(str, o.values))))
    open_ = [f"{code(c.name)} {', '.join(plain(str(label)) for label in c.labels)}" for c in m.choices()]
    open_ += [f"{code(p.name)} {' '.join(map(str, p.values))}" for p in m.params()]
    rows.append(("left open", "; ".join(open_)))
    solved = [layout.name for kind in machines_of(m) for layout in kind.layouts()]
    if solved:
        rows.append(("solved layouts", ", ".join(map(code, dict.fromkeys(solved)))))
    if issubclass(m, Plan):
        rows += [(f"step {code(s.name)}", f"{code(s.machine.__name__)}: {_sentence(s.machine)}") for s in _steps(m)]
        rows += [(f"workspace {code(w.name)}", f"{w.dtype}") for w in m.workspace_declarations()]
    return table(("declared", ""), rows)


def _steps(plan: type[Plan]) -> tuple[Step, ...]:
    return plan.step_declarations()


def _sentence(machine: type[Declared]) -> str:
    return plain(machine.summary())


def _tensor(t: TensorDeclaration) -> str:
    kinds, access = ", ".join(map(str, t.dtypes)), {"in": "read", "out": "written", "inout": "read and written"}
    orders = f"; {' or '.join(t.majors)}" if len(t.majors) > 1 else ""
    return f"{access[t.access]}, ({', '.join(t.names())}) of {kinds}{orders}"


def _declaration(a: Account) -> str:
    parts = ["## Declaration", fenced("python", a.source.declaration)]
    for base, source in a.shared:
        where = f', from <a href="../../machines/{source.file}">{source.file}</a>'
        where = "" if source.file == a.source.file else where
        text = "\n\n".join(part for part in (source.declaration, _indented(source.program)) if part)
        parts.append(folded(f"What it takes from <code>{base.__name__}</code>{where}", fenced("python", text)))
    return "\n\n".join(parts)


def _program(a: Account) -> str:
    parts = ["## Program", *([fenced("python", a.source.program)] if a.source.program else [])]
    for machine in machines_of(a.machine) if issubclass(a.machine, Plan) else ():
        source = source_of(machine)
        text = "\n\n".join(part for part in (source.declaration, _indented(source.program)) if part)
        parts.append(folded(f"The machine <code>{machine.__name__}</code> of its steps", fenced("python", text)))
    return "\n\n".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.split("\n")) if text else ""


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


# -- what is worked out --------------------------------------------------------------------------------------------


def _command(a: Account, verb: str, on: OnDevice, more: str = "") -> str:
    return f"tinygpu {verb} {a.name} --shape {shape_argument(a.machine, a.problem)} --device {on.asked}{more}"


def _built_of(a: Account) -> str:
    linked = [f"[{name}](../instructions/{name}.md)" if name in CARDS else code(name) for name in a.instructions]
    memories = ", ".join(a.memories)
    return f"{a.lines} lines, of these instructions: {', '.join(linked)}. Its programs have tiles in {memories}."


def _space(a: Account) -> str:
    on = a.first
    space = on.space.space
    removed: Counter[tuple[str, str, str, str]] = Counter()
    for row in space.funnel:
        c = row.constraint
        removed[row.name.partition(" (")[0], row.kind, row.source, c.sentence] += row.removed
    rows, left = [("all points", "", "", "", "", f"{space.raw_size:,}")], space.raw_size
    for (name, kind, source, sentence), count in removed.items():
        if count:
            left -= count
            rows.append((plain(name), kind, plain(source), plain(sentence), f"{count:,}", f"{left:,}"))
    idle = sum(1 for count in removed.values() if not count)
    structures = len(space.parts)
    said = (
        f"For {_sizes(a)} of {_types(a)}, on {on.title}: {space.raw_size:,} points in {structures} "
        f"structure{'s' * (structures != 1)} before any constraint, **{space.size:,} candidates** that all constraints "
        f"admit. Each constraint is counted with what those above it have left. {idle} more remove nothing here."
    )
    counted = table(("constraint", "kind", "brought by", "what must hold", "removes", "left"), rows, right=(4, 5))
    return "\n\n".join(["## Space", said, fenced("sh", _command(a, "space", on)), counted])


def _sizes(a: Account) -> str:
    return ", ".join(f"{name}={size}" for name, size in a.problem.dims)


def _types(a: Account) -> str:
    return ", ".join(dict.fromkeys(str(o.dtype) for o in a.problem.operands))


def _times(a: Account) -> str:
    rows = []
    for d in a.devices:
        if d.point is None:
            rows.append((d.title, "0", "", "", "", plain(d.sentence)))
            continue
        space = d.space.space
        share = f"{bar(d.share)}{SPACE}{percent(d.share)}"
        times = (microseconds(d.roofline_s), microseconds(d.seconds))
        rows.append((d.title, f"{space.size:,}", *times, share, d.sentence))
    said = (
        f"*Predicted, not measured*: the best candidate for {_sizes(a)} on each device, before the assembler. The "
        "least time is that of the useful work at the peak of the tensor cores, or of the compulsory bytes at the "
        "attainable bandwidth."
    )
    header = ("device", "candidates", "least", "predicted", "of the roofline", "where the time goes")
    points: dict[str, list[str]] = {}
    for d in a.devices:
        if d.point is not None:
            points.setdefault(_point(d.point), []).append(d.title)
    best = table(("best candidate", "on"), [(point, ", ".join(names)) for point, names in points.items()])
    command = fenced("sh", _command(a, "predict", a.first))
    return "\n\n".join(["## Roofline", said, _drawn(a), table(header, rows, right=(1, 2, 3)), best, command])


def _drawn(a: Account) -> str:
    """The drawing, which is a file of its own, and what is seen in it."""
    said = (
        "A line is what DRAM and arithmetic of a device allow, a large dot its best candidate, at the bytes that it "
        "moves through DRAM; small dots are candidates drawn at random, some of which compute more of what they drop. "
        "Both axes are logarithmic."
    )
    return f"![Rooflines of {a.name}]({a.name}.svg)\n\n{said}"


def _point(point: Mapping[str, int | str]) -> str:
    return code(" ".join(f"{name}={value}" for name, value in point.items()))


def _layouts(a: Account) -> str:
    said = (
        f"Of the best candidate on {a.first.title}. A distribution takes (thread, value) to coordinates of its tile, "
        "first modes fastest: `4@1` is four steps along axis 1. A buffer takes (coordinates, stage) to bytes of shared "
        "memory."
    )
    parts = ["## Layouts", said, fenced("sh", _command(a, "show", a.first, " --layouts"))]
    for step, layouts in a.layouts.items():
        parts += [f"### {step}"] if step else []
        parts += _tables(layouts)
        drawn = [f"{title}:\n\n{fenced('text', picture)}" for title, picture in layouts.pictures()]
        parts += drawn[:OPEN_PICTURES]
        if more := drawn[OPEN_PICTURES:]:
            parts.append(folded(f"{len(more)} more pictures", "\n\n".join(more)))
    return "\n\n".join(parts)


def _tables(layouts: Layouts) -> list[str]:
    held: dict[tuple[str, str], list[str]] = {}
    for d in layouts.distributions:
        held.setdefault((f"{d.dtype}[{d.shape}]", str(d.layout)), []).append(d.tile)
    rows = [(", ".join(dict.fromkeys(tiles)), code(kind), code(layout)) for (kind, layout), tiles in held.items()]
    parts = [table(("tiles", "type and shape", "(threads, values) to coordinates"), rows)] if rows else []
    if layouts.buffers:
        header = ("buffer", "type and shape", "(coordinates, stage) to bytes", "swizzle")
        parts.append(table(header, [_buffer(b) for b in layouts.buffers]))
    return parts


def _buffer(b: BufferLayout) -> tuple[str, str, str, str]:
    laid_out = "" if b.layout is None else code(b.layout)
    return code(b.buffer.name), code(f"{b.buffer.dtype}[{b.shape}]"), laid_out, b.swizzle


def _kernel(a: Account) -> str:
    s = a.smallest
    of = "The fewest lines of PTX among the first candidates of each structure"
    kernels = "in all, one kernel for each step" if len(s.steps) > 1 else "in all"
    shape = shape_argument(a.machine, s.problem)
    values = " ".join(f"{n}='{v}'" if " " in str(v) else f"{n}={v}" for n, v in s.point.items())
    command = f"tinygpu verify {a.name} --shape {shape} --device {s.asked} \\\n    {values}"
    parts = ["## Smallest kernel", f"{of}, for {s.problem}: {s.lines} lines {kernels}.", fenced("sh", command)]
    for step, (problem, built) in s.steps.items():
        parts += [f"### {step}"] if step else []
        kernel = built.kernel
        grid = " x ".join(map(str, kernel.grid(problem)))
        parts.append(
            f"For {kernel.architecture}: {grid} CTAs of {kernel.threads} threads and {kernel.smem_bytes:,} B of shared "
            f"memory{_checks(kernel.facts)}."
        )
        traced = fenced("text", str(built.program).rstrip())
        parts += [folded("The program of this candidate, as it was traced", traced), fenced("ptx", kernel.ptx.rstrip())]
    return "\n\n".join(parts)


def _checks(facts: Sequence[object]) -> str:
    listed = ", ".join(code(f) for f in facts)
    return f"; the launch checks {listed}" if listed else ""
