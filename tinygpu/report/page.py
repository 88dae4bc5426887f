"""The page: all parts of a report in one HTML file that asks no network for anything."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from tinygpu.report.candidates import candidates, legend, units
from tinygpu.report.chart import count_text, rate_text, seconds_text
from tinygpu.report.convergence import convergence
from tinygpu.report.coordinates import coordinates, varying
from tinygpu.report.funnel import funnel
from tinygpu.report.layouts import layout
from tinygpu.report.measured import measured
from tinygpu.report.roofline import roofline
from tinygpu.report.run import Run, Searched
from tinygpu.report.timeline import timeline

_CANDIDATES = (
    "<p>Lowered, assembled, and predicted again with the assembler's registers and the conflicts that are left.</p>"
)
_LAYOUTS = (
    "<p>Each cell is a run of bytes that stays whole, named row:number; a colour is one column of the tile, and "
    "every eighth has the same. Where a colour stands in one column of the picture, who reads that column of the tile "
    "meets bank conflicts.</p>"
)
_ENDS = {
    "every point": "every point was tried",
    "evaluations": "the budget of evaluations was spent",
    "seconds": "the time was spent",
    "within": "the best was close enough to the bound",
    "strategy": "the strategy had no more to propose",
    "proof": "no other point can be better",
    "interrupted": "it was interrupted",
}
_VERDICTS = {True: ("proof", "emulated, right"), False: ("wrong", "emulated, WRONG"), None: ("open", "not emulated")}


def page(run: Run) -> str:
    """The report as HTML, which is also well-formed XML after its first line."""
    sections = list(_sections(run))
    links = "".join(f'<a href="#{key}">{escape(short)}</a>' for key, short, _, _ in sections)
    body = "".join(
        f'<section id="{key}"><h2>{escape(title)}</h2>{content}</section>' for key, _, title, content in sections
    )
    style, script = (files("tinygpu.report").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="color-scheme" content="light dark"/>'
        # nothing is ever fetched
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>"
        f"<title>{escape(run.title)} · tinyGPU</title><style>{style}</style></head><body>"
        f"{_header(run)}<nav>{links}</nav><main>{body}</main>{_footer(run)}"
        f'<div id="tip" role="status"></div><script>{script}</script></body></html>\n'
    )


def _sections(run: Run) -> Iterator[tuple[str, str, str, str]]:
    """What the run has something to say about: (key, short title, title, content)."""
    best = run.best
    spaces = [part for part in run.searched if part.raw]
    if spaces:
        shown = "".join(_part(part, funnel(part), spaces) for part in spaces)
        yield "funnel", "Pruning", "What was pruned, and why", shown
    if run.refused:
        said = "".join(f"<li><b>{escape(m)}</b>: {escape(why)}</li>" for m, why in run.refused.items())
        yield "refused", "Refused", "Machines that do not take this problem", f"<ul>{said}</ul>"
    if any(part.improvements for part in run.searched):
        notes = "".join(f"<p>{_search(part)}</p>" for part in run.searched if part.tried)
        yield "convergence", "Search", "How the search went", notes + convergence(run.searched, run.floor)
    sampled = [part for part in run.searched if part.sample is not None and varying(part.sample)]
    if sampled:
        charts = "".join(_part(part, coordinates(part.sample), sampled) for part in sampled if part.sample is not None)
        yield "parameters", "Parameters", "Parameters and times", charts
    if any(part.candidates for part in run.searched):
        yield "candidates", "Candidates", "The best candidates", _CANDIDATES + legend(run) + candidates(run)
    yield "measured", "Measured", "Predicted against measured", measured(run)
    if found := roofline(run):
        yield "roofline", "Roofline", "Roofline", found
    if best is not None:
        yield "units", "Units", "What the winner keeps busy", units(best)
    if run.timeline is not None and run.timeline.stretches:
        yield "timeline", "Timeline", "Timeline of the winner", timeline(run.timeline)
    if best is not None and best.layouts:
        pictures = "".join(layout(placed) for placed in best.layouts)
        yield "layouts", "Layouts", "Layouts in shared memory", _LAYOUTS + pictures
    if run.verification:
        yield "verification", "Emulator", "What the emulator said", f"<pre>{escape(run.verification)}</pre>"


def _part(part: Searched, content: str, among: list[Searched]) -> str:
    head = f"<h3>{escape(part.machine)} <small>{escape(part.summary)}</small></h3>" if len(among) > 1 else ""
    none = f'<p class="empty">No candidate: {escape(part.sentence)}</p>' if part.sentence else ""
    return head + content + none


def _search(part: Searched) -> str:
    """How a machine's search went, in a sentence."""
    failed = ", ".join(f"{count:,} {kind}" for kind, count in part.failures.items())
    return (
        f"<b>{escape(part.machine)}</b>: {escape(part.strategy)}, seed {part.seed}, {part.tried:,} of "
        f"{escape(count_text(part.size))} candidates in {seconds_text(part.seconds)}; {_ENDS.get(part.ended, '')}"
        f"{'; failed: ' + escape(failed) if failed else ''}."
    )


def _header(run: Run) -> str:
    best = run.best
    tiles = []
    if best is not None:
        tiles.append(("predicted", seconds_text(best.seconds), "on the model of this device"))
        tiles.append(("of the roofline", f"{100 * best.roofline:.0f} %", f"least time {seconds_text(run.floor or 0)}"))
        if best.flops > 0:
            tiles.append(("useful work", rate_text(best.flops / best.seconds, "FLOP/s"), f"{best.roof}, predicted"))
    timed = [t.seconds for t in run.timed if t.seconds is not None]
    if timed:
        tiles.insert(0, ("measured", seconds_text(min(timed)), run.measured.removeprefix("measured ")))
    raw, left = sum(part.raw for part in run.searched), sum(part.size for part in run.searched)
    if raw:
        tiles.append(("candidates", count_text(left), f"of {count_text(raw)} points"))
    shown = "".join(
        f'<div class="tile"><small>{escape(name)}</small><strong>{escape(value)}</strong>'
        f"<span>{escape(more)}</span></div>"
        for name, value, more in tiles
    )
    kind, words = _VERDICTS[run.verified]
    told = '<span class="badge measured">measured</span>' if timed else '<span class="badge open">not measured</span>'
    won = ""
    if best is not None and run.winner is not None:
        won = f"<p>{escape(run.searched[run.winner[0]].machine)} · {escape(best.sentence)}</p>"
    eyebrow = " · ".join(word for word in ("tinyGPU", run.family, run.device) if word)
    return (
        f'<header><p class="eyebrow">{escape(eyebrow)}</p><h1>{escape(run.title)}</h1>'
        f'{won}<p><span class="badge predicted">predicted</span> <span class="badge {kind}">{words}</span> {told}</p>'
        f'<div class="tiles">{shown}</div></header>'
    )


def _footer(run: Run) -> str:
    return (
        f"<footer>tinyGPU {escape(run.version)} · {escape(run.date[:16].replace('T', ' '))} · proved: by a solver; "
        "emulated: this PTX ran in the emulator; predicted: by the model; measured: on a chip</footer>"
    )
