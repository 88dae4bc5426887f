"""`tinygpu report`, from a tuning run to its page; runs that are interrupted and killed."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tinygpu.api.report import load_run, report
from tinygpu.cli.app import app
from tinygpu.cli.live import duration_text, progress_text
from tinygpu.search import Evaluation, Failure, Progress, Result, minimize
from tinygpu.search.budget import Budget
from tinygpu.search.evaluation import Trial

TUNE = ("tune", "axpby", "--shape", "n=3000", "--device", "a100", "--keep", "2", "--strategy", "random")


def command(*words: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("run") / "kernel"
    command(*TUNE, "--evaluations", 25, "--seed", 3, "-o", found)
    return found


@pytest.mark.end_to_end
def test_a_run_becomes_a_page(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    said = command("report", folder, "-o", out)
    text = out.read_text()
    assert said == f"wrote {out}: axpby n\u00a0=\u00a03,000 · f32, {len(text.encode()) / 1024:,.0f} KiB\n"
    tree = ElementTree.fromstring(text.split("\n", 1)[1])
    sections = [s.get("id") for s in tree.iter("section")]
    assert sections == [
        "funnel", "convergence", "parameters", "candidates", "measured", "roofline", "units", "timeline", "verification"
    ]  # fmt: skip
    assert "emulated, right" in text
    # the same page from the file itself
    assert report(load_run(folder / "run.json")) == text


@pytest.mark.end_to_end
def test_what_a_run_says_is_what_was_found(folder: Path) -> None:
    run = load_run(folder)
    launch = json.loads((folder / "launch.json").read_text())
    (part,) = run.searched
    best = run.best
    assert best is not None
    assert best.seconds == pytest.approx(launch["predicted_seconds"])
    assert best.registers == launch["registers"]
    assert part.tried == 25
    assert part.raw - sum(step.removed for step in part.steps) == part.size
    assert part.sample is not None
    assert len(part.sample.seconds) == 25
    # the curve goes down to the best that was tried, and the winner's time is the sum of its parts
    assert [seconds for _, seconds in part.improvements] == sorted({s for _, s in part.improvements}, reverse=True)
    assert part.improvements[-1][1] == min(part.sample.seconds)
    lost = sum(best.breakdown[key] for key in ("latency", "tail", "power", "launch"))
    assert max(list(best.breakdown.values())[:8]) + lost == pytest.approx(best.seconds)
    assert run.floor == pytest.approx(best.seconds * best.roofline)
    assert run.timeline is not None
    assert run.timeline.stretches


def test_a_saved_search_becomes_a_page(tmp_path: Path) -> None:
    class Space:
        size = 40
        names = ("a",)

        def __contains__(self, point: object) -> bool:
            return True

        def columns_by_part(self) -> object:
            import numpy as np

            yield None, {"a": np.arange(40)}

    def seconds(points: list) -> list[Evaluation]:
        bad = Evaluation(failure=Failure("timeout", "slow"))
        return [bad if p["a"] == 7 else Evaluation(1e-6 * (40 - p["a"])) for p in points]

    result = minimize(Space(), seconds, strategy="exhaustive", subject="forty <numbers>")  # type: ignore[arg-type]
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result
    command("report", tmp_path / "result.json", "-o", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    tree = ElementTree.fromstring(text.split("\n", 1)[1])
    assert [s.get("id") for s in tree.iter("section")] == ["convergence", "parameters", "measured"]
    said = " ".join(" ".join(tree.itertext()).split())
    assert "forty <numbers> : exhaustive, seed 0, 40 of 40 candidates" in said
    assert "failed: 1 timeout" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "{} cannot be read: No such file or directory; `tinygpu tune` writes runs"),
        ("hello", "{} is no run, or has been cut: one of version 1 begins by saying so"),
        ("{}", "{} is no run, or has been cut: one of version 1 begins by saying so"),
    ],
)
def test_what_is_no_run_gets_a_sentence(text: str | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    done = CliRunner().invoke(app, ["report", str(file), "-o", str(tmp_path / "page.html")])
    assert str(done.exception) == sentence.format(file)
    assert not (tmp_path / "page.html").exists()


def results_file(path: Path, folder: Path, device: str = "A100-SXM4-80GB", dims: int = 3000) -> Path:
    """What a worker would have written of two candidates of the run: one was timed, one failed."""
    run = json.loads((folder / "run.json").read_text())
    problem = json.loads(run["searched"][0]["problem"])
    problem["dims"] = {"n": dims} if isinstance(problem["dims"], dict) else [["n", dims]]
    head = {
        "tinygpu_results": 1,
        "title": "axpby",
        "device": device,
        "gpu": {"name": "NVIDIA <A100>", "driver": "13.0"},
        "date": "2026-03-01T10:00:00",
        "problems": [problem],
    }
    same = {"machine": "Axpby", "point": run["searched"][0]["candidates"][0]["point"], "question": 0, "digest": "d"}
    spread = {"median": 4.25e-6, "low": 4.2e-6, "high": 4.4e-6}
    lines = [
        head,
        same
        | {"kernel": "k0", "status": "measured", "predicted_s": 4e-6, "cold": spread, "warm": None, "relative": 1.0}
        | {"verdict": "faster"},
        same
        | {"kernel": "k1", "status": "failed", "predicted_s": 5e-6, "failure": {"kind": "timeout", "sentence": "slow"}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_measured_times_stand_beside_what_was_predicted(folder: Path, tmp_path: Path) -> None:
    results = results_file(tmp_path / "results.jsonl", folder)
    command("report", folder, "--results", results, "-o", tmp_path / "page.html")
    command("report", results, "-o", tmp_path / "alone.html")
    for name in ("page.html", "alone.html"):
        tree = ElementTree.fromstring((tmp_path / name).read_text().split("\n", 1)[1])
        said = " ".join(" ".join(tree.itertext()).split())
        assert "Nothing was measured" not in said
        assert "Measured on NVIDIA <A100>, driver 13.0, 2026-03-01: 1 candidate." in said
        assert "The best took 4.25 µs , predicted 4.00 µs." in said
        assert "Failed: 1 timeout." in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"device": "H200-SXM"}, "{} holds kernels made for H200-SXM, and this run is for A100-SXM4-80GB"),
        ({"dims": 3001}, "{} holds results of axpby, and nothing of this run's problem"),
    ],
)
def test_results_of_something_else_are_refused(arguments: dict, sentence: str, folder: Path, tmp_path: Path) -> None:
    results = results_file(tmp_path / "results.jsonl", folder, **arguments)
    done = CliRunner().invoke(app, ["report", str(folder), "--results", str(results), "-o", str(tmp_path / "p.html")])
    assert str(done.exception) == sentence.format(results)
    assert not (tmp_path / "p.html").exists()


# --- interrupted and killed runs ----------------------------------------------------------------------------------

LONG = ("tune", "matmul_simt", "--shape", "m=33,n=40,k=20", "--device", "a100", "--strategy", "random")


def start(folder: Path, *more: str) -> "subprocess.Popen[str]":
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from tinygpu.cli import main; main()"
    )
    words = [*LONG, "--seconds", "600", "--evaluations", "1000000", *more]
    return subprocess.Popen(
        [sys.executable, "-c", program, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(journal: Path, lines: int, process: "subprocess.Popen[str]") -> None:
    while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < lines):
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()


@pytest.mark.end_to_end
def test_ctrl_c_leaves_what_was_found(tmp_path: Path) -> None:
    process = start(tmp_path, "--journal", "journal")
    journal = tmp_path / "journal" / "MatmulSimt.jsonl"
    wait_for(journal, 20, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    file = Path("runs/matmul_simt-m33-n40-k20-A100-SXM4-80GB-interrupted/run.json")
    run = load_run(tmp_path / file)
    (part,) = run.searched
    assert part.ended == "interrupted"
    assert part.tried == journal.read_bytes().count(b"\n") - 1
    assert errors == (
        f"tinygpu: interrupted after {part.tried:,} candidates: the best is MatmulSimt's, predicted "
        f"{part.improvements[-1][1] * 1e6:,.1f} us, neither assembled nor verified; wrote {file}; the same command "
        "goes on from there\n"
    )
    assert "it was interrupted" in report(run)


def test_ctrl_c_while_measuring_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*words: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("tinygpu.api.measured.measure_here", interrupted)
    said = command("tune", "axpby", "--shape", "n=300", "--device", "h200", "--measure", 3, status=130)
    assert said.endswith(
        "tinygpu: interrupted; times that were measured stay in their folder below runs/, and --results takes them in\n"
    )


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal" / "MatmulSimt.jsonl"
    process = start(tmp_path, "--journal", "journal")
    wait_for(journal, 12, process)
    process.kill()
    process.wait()
    whole = [json.loads(line) for line in journal.read_text().splitlines()[1:] if line.endswith("}")]
    budget = len(whole) + 5
    out = tmp_path / "out"
    command(*LONG, "--evaluations", budget, "--journal", journal.parent, "--keep", 1, "-o", out)
    again = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert [entry["point"] for entry in again[: len(whole)]] == [entry["point"] for entry in whole]
    assert len({json.dumps(entry["point"], sort_keys=True) for entry in again}) == len(again) == budget
    # as if it had never been killed
    calm = tmp_path / "calm"
    command(*LONG, "--evaluations", budget, "--keep", 1, "-o", calm)
    assert load_run(out).searched[0].improvements == load_run(calm).searched[0].improvements
    assert (out / "kernel.ptx").read_text() == (calm / "kernel.ptx").read_text()


@pytest.mark.end_to_end
def test_a_run_that_was_cut_goes_on_from_its_journal(tmp_path: Path) -> None:
    """A line that was cut off is forgotten, what stands before it is not tried again, and the end is the same."""
    budget = ("--evaluations", 9, "--seed", 5)
    command(*TUNE, *budget, "--journal", tmp_path / "journal", "-o", tmp_path / "calm")
    (journal,) = (tmp_path / "journal").iterdir()
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:6]) + lines[6][:9])
    command(*TUNE, *budget, "--journal", tmp_path / "journal", "-o", tmp_path / "out")
    again = journal.read_bytes().splitlines(keepends=True)
    assert again[:6] == lines[:6]
    points = [[json.loads(line)["point"] for line in one[1:]] for one in (lines, again)]
    assert points[0] == points[1]
    assert (tmp_path / "out" / "kernel.ptx").read_text() == (tmp_path / "calm" / "kernel.ptx").read_text()


# --- the line that is shown while a search runs -------------------------------------------------------------------


def test_the_line_of_a_running_search() -> None:
    best = Trial({}, Evaluation(13.37e-6))
    p = Progress(3000, 0, 14, 94616, 14.0, 214.2, best, {"launch": 12, "timeout": 2}, Budget(94616, None, None, 6.9e-6))
    assert progress_text(p) == (
        "3,000 of 94,616 tried, 214/s, best 13.4 us (52 % of the roofline), failed: 12 launch, 2 timeout, 7 min left"
    )
    assert progress_text(Progress(1, 0, 0, None, 2.0, 0.5, None)) == "1 tried, 0.5/s, none has a value yet"
    assert [duration_text(s) for s in (8.4, 89.9, 400, 7800)] == ["8 s", "90 s", "7 min", "2 h 10 min"]


# --- in a browser -------------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
# Runs inside the page: what does not fit, what went wrong, and whether choosing a value hides rays.
PROBE = """
window.onerror = function (message) { parent.document.body.dataset.errors = message; };
window.addEventListener("load", function () {
  var out = parent.document.body.dataset, width = document.documentElement.clientWidth;
  out.width = width;
  out.overflow = document.documentElement.scrollWidth - width;
  out.charts = Array.from(document.querySelectorAll("svg")).filter(function (s) { return s.clientWidth; }).map(
    function (s) { return s.classList.contains("wide") ? "wide" : "narrow"; }).join(" ");
  out.small = Array.from(document.querySelectorAll("svg text")).filter(function (t) {
    var box = t.getBoundingClientRect(); return box.height !== 0; }).filter(function (t) {
    return t.getBoundingClientRect().height < 10; }).length;
  out.paper = getComputedStyle(document.body).backgroundColor;
  out.ink = getComputedStyle(document.body).color;
  var pick = Array.from(document.querySelectorAll(".pick")).find(function (p) { return p.getClientRects().length; });
  var before = document.querySelectorAll(".ray.out").length;
  pick.dispatchEvent(new MouseEvent("click", {bubbles: true}));
  out.hidden = document.querySelectorAll(".ray.out").length - before;
  out.shown = document.querySelectorAll(".ray:not(.out)").length;
  pick.dispatchEvent(new MouseEvent("click", {bubbles: true}));
  out.back = document.querySelectorAll(".ray.out").length - before;
});
"""


@pytest.mark.end_to_end
@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_in_a_browser(folder: Path, width: int, scheme: str, tmp_path: Path) -> None:
    if BROWSER is None:
        pytest.skip("no Chromium is installed (Debian's package chromium)")
    text = report(load_run(folder))
    probed = text.replace("<head>", f"<head><script>{PROBE}</script>", 1)
    quoted = probed.replace("&", "&amp;").replace('"', "&quot;")
    # a frame is as narrow as a phone; a window of the browser is not
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><body><iframe width="{width}" height="900" style="border:0" '
        f'srcdoc="{quoted}"></iframe></body>'
    )
    run = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}", "--hide-scrollbars",
            "--window-size=1400,1000", "--virtual-time-budget=4000",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", "--dump-dom", f"file://{frame}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', run.stdout.partition("<iframe")[0]))
    assert "errors" not in found, found
    assert found, run.stderr
    assert found["width"] == str(width)
    assert found["overflow"] == "0"
    assert set(found["charts"].split()) == {"wide" if width > 620 else "narrow"}
    assert found["small"] == "0"
    dark = [sum(map(int, re.findall(r"\d+", found[what])[:3])) for what in ("paper", "ink")]
    assert (dark[0] < dark[1]) == (scheme == "dark")
    assert int(found["hidden"]) > 0
    assert int(found["shown"]) > 0
    assert found["back"] == "0"
