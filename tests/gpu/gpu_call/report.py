"""The readable page of a call's results: tables, each with what was measured where and when, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

OURS, TORCH, TRITON, COPY = "tinyGPU", "PyTorch", "Triton", "copy"
# What the management library says; on many machines it does not say all of it.
CLOCKS = {"sm_mhz": "SM {} MHz", "memory_mhz": "memory {} MHz", "watts": "{:.0f} W", "celsius": "{} C"}


def report(results: Mapping[str, Any]) -> str:
    """Markdown of everything that the steps found; a step that found nothing says why."""
    steps = {s["step"]: s for s in results["steps"]}
    found = {name: s["result"] for name, s in steps.items()}
    parts = [shown("Results", heading, found.get("environment", {})), step_table(results["steps"])]
    for name, section in SECTIONS.items():
        if found.get(name):
            parts.append(shown(name, section, found[name]))
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(name: str, section: Callable[[Mapping[str, Any]], str], found: Mapping[str, Any]) -> str:
    """A section; where what was found cannot be shown (a step that was ended in the middle, a figure that is not
    there), that it cannot: no page may cost what was measured."""
    try:
        return section(found)
    except Exception as error:
        return f"## {name}\n\nThis cannot be shown as a table ({type(error).__name__}: {error}); results.json holds it."


def heading(machine: Mapping[str, Any]) -> str:
    """Which GPU, when, which driver, which kernels, at which clocks."""
    gpu = machine.get("gpu")
    title = "# Results without a GPU: a rehearsal" if machine.get("rehearsal") else "# Results"
    if gpu and not machine.get("rehearsal"):
        title = f"# Results on {gpu['name']}"
    rows: list[tuple[str, Any]] = [
        ("date", machine.get("date")), ("kernels made", machine.get("kit")),
        ("kernels made for", machine.get("made_for")), ("machine code by", machine.get("assembler")),
        ("another GPU", machine.get("other_gpu")),
    ]  # fmt: skip
    if gpu:
        rows += [
            ("GPU", f"{gpu['name']}, {gpu['sms']} SMs, {gpu['l2_bytes'] / 2**20:.0f} MiB of L2"),
            ("driver (CUDA)", gpu["driver"]),
        ]
    packages = {k: v for k, v in machine.get("packages", {}).items() if v}
    clocks = machine.get("clocks") or {}
    rows += [
        ("nvidia-smi", machine.get("nvidia_smi")),
        ("clocks at the start", state(clocks)),
        ("Python", machine.get("python")),
        ("packages", ", ".join(f"{k} {v}" for k, v in packages.items())),
        ("kernel", machine.get("kernel")),
    ]
    return title + "\n\n" + table(["", ""], [[k, str(v)] for k, v in rows if v])


def state(clocks: Mapping[str, Any]) -> str:
    """Clocks, power and temperature in words; "" where nobody said."""
    if not clocks:
        return ""
    said = [
        words.format(clocks[name]) for name, words in CLOCKS.items() if clocks.get(name) is not None
    ]
    if clocks.get("held_back"):
        said.append(f"held back by {', '.join(clocks['held_back'])}")
    return ", ".join(said)


def step_table(steps: Sequence[Mapping[str, Any]]) -> str:
    rows = [[s["step"], s["status"], f"{s['seconds']:.0f} of {s['limit_s']:.0f} s", s["reason"]] for s in steps]
    return "## Steps\n\n" + table(["step", "", "time", "why"], rows)


def correctness(found: Mapping[str, Any]) -> str:
    rows = []
    failures = []
    for name, c in found["cases"].items():
        rows.append([name, ", ".join(c["machines"]), f"{c['right']} of {c['kernels']}", c.get("ended", "")])
        failures += [
            f"- {name}, {f['machine']} `{point(f['point'])}`: {f['kind']}: {f['sentence']}" for f in c["failures"]
        ]
    text = (
        f"## Correctness\n\n{found['right']} of {found['kernels']} kernels are right on the GPU ({found['tried']} were "
        "tried): bit for bit on small integers, and on random numbers within what rounding explains.\n\n"
    )
    text += table(["case", "machines", "right", ""], rows)
    refused = sorted({code for c in found["cases"].values() for code in c.get("refused_cubins", ())})
    if refused:
        text += f"\n\nMachine code that the driver refused, so that it compiled the PTX: {', '.join(refused)}."
    return text + ("\n\n" + "\n".join(failures) if failures else "")


def point(values: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in values.items())


def side_by_side(found: Mapping[str, Any]) -> str:
    rows = found["rows"]
    how = found["protocol"]
    text = (
        f"## Side by side\n\nMedians of {how['rounds']} samples with a cold L2 and {how['warm_rounds']} with a warm "
        "one, all in turns in random order, by CUDA graphs; normally distributed inputs. Every result was compared "
        "with one in double precision first. Ratios are ours over the other, pair by pair, with the interval that "
        "holds the median in 99 of 100 cases: below 1 ours takes less time."
    )
    if "torch" in found:
        narrow = "allowed, as by default" if found["bf16_sums_in_bf16"] else "not allowed"
        text += (
            f" PyTorch {found['torch']} with the libraries of CUDA {found['cuda_of_torch']}; partial sums of cuBLAS in "
            f"bf16 are {narrow}."
        )
    matmuls = [r for r in rows if r["role"] == "matmuls"]
    streams = [r for r in rows if r["role"] == "streams"]
    if matmuls:
        text += "\n\n### Matmul, TFLOP/s\n\n" + matmul_table(matmuls) + "\n\n" + means(matmuls)
    if streams:
        text += "\n\n### Bound by memory, GB/s\n\n" + stream_table(streams)
    notes = [f"- {name}: {sentence}" for name, sentence in found["failed"].items()]
    notes += [f"- {name}: kernels left out: {', '.join(k)}" for name, k in found["skipped_kernels"].items()]
    if found["left"]:
        notes.append(f"- not reached: {', '.join(found['left'])}")
    for row in rows:
        notes += [f"- {row['case']}, {what}: {why}" for what, why in row["tried"]["failed"].items()]
    return text + ("\n\nLeft out:\n\n" + "\n".join(notes) if notes else "")


def flops(row: Mapping[str, Any]) -> float:
    d = row["problem"]["dims"]
    return 2.0 * int(d["m"]) * int(d["n"]) * int(d["k"])


def cold(row: Mapping[str, Any], who: str) -> float | None:
    """Seconds per launch; None where it has no time."""
    found = row["contenders"].get(who)
    return None if found is None else float(found["cold"]["median"])


def matmul_table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        work = flops(row)
        cells = [row["case"]]
        for who in (OURS, TORCH, TRITON):
            seconds = cold(row, who)
            # of a library's kernel this is said, and its time stands: it may add up in a narrower type
            less = who == TORCH and not row["torch_right"]
            mark = f" (error: {row['torch_error'] or float('nan'):.2g} of what rounding explains)" if less else ""
            cells.append("" if seconds is None else f"{work / seconds / 1e12:.1f}{mark}")
        ours = cold(row, OURS)
        cells.append("" if ours is None else f"{ours * 1e6:.1f}")
        cells += [versus(row, TORCH), versus(row, TRITON)]
        warm = [row["contenders"][who]["warm"] for who in (OURS, TORCH) if who in row["contenders"]]
        cells.append(" / ".join(f"{w['median'] * 1e6:.1f}" for w in warm if w))
        ours_what = row["ours"]
        cells.append("" if ours_what is None else f"{ours_what['machine']} `{point(ours_what['point'])}`")
        lines.append(cells)
    head = [
        "problem", OURS, "cuBLAS", TRITON, "ours, us", "ours / cuBLAS", "ours / Triton", "warm, us: ours / cuBLAS",
        "our kernel",
    ]  # fmt: skip
    return table(head, lines)


def versus(row: Mapping[str, Any], who: str) -> str:
    """ratio [low, high] verdict."""
    r = row["ratios"].get(who)
    if r is None:
        return ""
    high = "inf" if r["high"] is None else f"{r['high']:.3f}"
    return f"{r['median']:.3f} [{r['low']:.3f}, {high}] {r['verdict']}"


def speedup(rows: Iterable[Mapping[str, Any]], who: str) -> tuple[float, int] | None:
    """(geometric mean of the other's time over ours, number of problems); None without any."""
    logs = [-math.log(r["ratios"][who]["median"]) for r in rows if who in r["ratios"]]
    return (math.exp(sum(logs) / len(logs)), len(logs)) if logs else None


def means(rows: Sequence[Mapping[str, Any]]) -> str:
    """Geometric means over the shapes of models, by rows and in all."""
    models = [r for r in rows if r["facts"].get("model")]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for r in models:
        groups.setdefault(f"m = {r['problem']['dims']['m']}", []).append(r)
    groups["all shapes of models"] = models
    lines = []
    for name, members in groups.items():
        cells = [name]
        for who in (TORCH, TRITON):
            mean = speedup(members, who)
            cells.append("" if mean is None else f"{mean[0]:.3f} (of {mean[1]})")
        lines.append(cells)
    return "Geometric mean of how many times as fast ours is:\n\n" + table(["", "as cuBLAS", "as Triton"], lines)


def stream_table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        cells = [row["case"]]
        for who in (OURS, TORCH, COPY):
            seconds = cold(row, who)
            cells.append("" if seconds is None else f"{row['bytes'] / seconds / 1e9:,.0f}")
        ours, copy = cold(row, OURS), cold(row, COPY)
        cells.append("" if ours is None or copy is None else f"{100 * copy / ours:.1f} %")
        cells += [versus(row, TORCH), row["contenders"].get(TORCH, {}).get("what", "")]
        what = row["ours"]
        cells.append("" if what is None else f"`{point(what['point'])}`")
        lines.append(cells)
    return table(["problem", OURS, TORCH, "copy", "of the copy", "ours / PyTorch", "PyTorch has", "our kernel"], lines)


def dense(found: Mapping[str, Any]) -> str:
    failed = ", ".join(f"{count} {kind}" for kind, count in found["failures"].items()) or "none"
    text = (
        f"## {found['case']}\n\n{found['measured']} candidates measured of {found['kernels']} ({found['tried']} tried; "
        f"failed: {failed})."
    )
    if "best" not in found:
        return text
    d = found["problem"]["dims"]
    work = 2.0 * d["m"] * d["n"] * d["k"]
    best, guess = found["best"], found["best_predicted"]
    correlation = found["rank_correlation"]
    text += (
        f" Best: {work / best['cold']['median'] / 1e12:.1f} TFLOP/s, {best['cold']['median'] * 1e6:.1f} us, `"
        f"{point(best['point'])}`. The one predicted best is number {guess['rank']} of those measured, "
        f"{100 * (guess['over_best'] - 1):.1f} % slower."
    )
    if correlation is not None:
        text += f" Rank correlation of predicted and measured times: {correlation:.3f}."
    rows = [
        [str(n), f"{work / t['cold']['median'] / 1e12:.1f}", f"{t['cold']['median'] * 1e6:.1f}",
         f"{t['predicted_s'] * 1e6:.1f}", f"`{point(t['point'])}`"]
        for n, t in enumerate(found["top"], start=1)
    ]  # fmt: skip
    return text + "\n\n" + table(["", "TFLOP/s", "us", "predicted, us", "candidate"], rows)


def calibration(found: Mapping[str, Any]) -> str:
    used = [f for f in found["figures"] if f["field"] and not f["doubt"]]
    doubted = [f for f in found["figures"] if f["doubt"]]
    failed = [f for f in found["failures"] if not f["skipped"]]
    text = f"## Calibration\n\n{len(used)} figures of the device measured"
    text += f"; {len(doubted)} not used, {len(failed)} microbenchmarks without a figure." if doubted or failed else "."
    known = found.get("known", {})
    rows = [
        [f["field"], f"{f['value']:.4g} {f['unit']}", f"{known[f['field']]:.4g}" if f["field"] in known else "",
         f"{100 * f['spread']:.1f} %", f["benchmark"]]
        for f in used
    ]  # fmt: skip
    if found.get("stand_in"):
        text += f" But {found['stand_in']}."
    text += "\n\n" + table(["figure", "measured", "library", "spread", "microbenchmark"], rows)
    notes = [f"- {f['benchmark']}, {f['name']}: {f['value']:.4g} {f['unit']}: {f['doubt']}" for f in doubted]
    notes += [f"- {f['benchmark']}: {f['sentence']}" for f in failed]
    return text + ("\n\n" + "\n".join(notes) if notes else "")


def counters(found: Mapping[str, Any]) -> str:
    text = "## Counters: emulated, and of the hardware (ncu)\n\n"
    rows = []
    for name, case in found["cases"].items():
        if "failed" in case:
            rows.append([name, "", "", "", case["failed"]])
            continue
        for c in case["counters"]:
            if c["measured"] is None or (c["emulated"] == 0 and c["measured"] == 0):
                continue
            rows.append([name, c["counter"], f"{c['emulated']:,.0f}", f"{c['measured']:,.0f}", c["verdict"]])
    return text + table(["kernel", "counter", "emulated", "measured", ""], rows)


def sanitizer(found: Mapping[str, Any]) -> str:
    rows = []
    for name, run in found["runs"].items():
        said = run.get("failed") or "; ".join(run.get("first", [])[:2])
        count = run.get("found")
        rows.append([name, "" if count is None else str(count), said])
    return "## compute-sanitizer\n\n" + table(["run", "errors", ""], rows)


def gpu_tests(found: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{n} {kind}" for kind, n in found["counts"].items())
    rows = [[n, t["outcome"], t["why"]] for n, t in found["tests"].items() if t["outcome"] != "passed"]
    text = f"## Tests marked gpu\n\n{counts}."
    return text + ("\n\n" + table(["test", "", "why"], rows) if rows else "")


SECTIONS = {
    "correctness": correctness, "side_by_side": side_by_side, "dense_0": dense, "dense_1": dense,
    "calibration": calibration, "counters": counters, "sanitizer": sanitizer, "gpu_tests": gpu_tests,
}  # fmt: skip


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; bars and line ends within cells would break it."""
    def line(cells: Sequence[str]) -> str:
        plain = (str(c).replace("|", "\\|").replace("\n", " ") for c in cells)
        return "| " + " | ".join(plain) + " |"

    return "\n".join([line(head), line(["---"] * len(head)), *(line(row) for row in rows)])
