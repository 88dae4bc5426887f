"""Steps as processes: done, skipped, failed, killed with all that they started; what they had found stays."""

import json
import os
import socket
import sys
import time
import zipfile
from pathlib import Path

import pytest
from gpu_call.collect import NotResults, collect, listed, slug
from gpu_call.kit import Job, Kit, NotAKit, open_kit, unpacked_kit, write_kit
from gpu_call.places import Places
from gpu_call.records import Lines, StepRecord, read_json, read_lines, write_json
from gpu_call.report import report
from gpu_call.run import ROOT, STEPS, Run, Step, call, main
from gpu_call.side_by_side import MOST_STARTS, Progress, watch
from gpu_call.step import find_tool, run_program
from hypothesis import given
from hypothesis import strategies as st

HERE = Path(__file__).parent
HEAD = "import sys, time, subprocess\nfrom gpu_call.step import Skip, run_step\ndef step(call):\n"
TAIL = "\nsys.exit(run_step(step))\n"
BODIES = {
    "good": "    return {'found': 3, 'left': call.left() > 0}",
    "no_tool": "    raise Skip('there is no tool here')",
    "settings": "    import os\n    return {k: os.environ.get(k) for k in ('XLA_PYTHON_CLIENT_PREALLOCATE', 'HOME')}",
    "no_number": "    return {'found': float('nan'), 'deep': [{'a': float('inf')}], 'good': 1.5}",
    "hopeless": "    return {'found': 4, 'stop': 'nothing runs here'}",
    "broken": "    call.tell({'found': 1})\n    raise RuntimeError('it does not work')",
    "endless": (
        "    call.tell({'found': 2})\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "    (call.work / 'child').write_text(str(child.pid))\n    time.sleep(600)"
    ),
}


@pytest.fixture
def running(tmp_path: Path) -> Run:
    """A call whose steps are small programs."""
    site, work, out = tmp_path / "site", tmp_path / "work", tmp_path / "out"
    for folder in (site / "gpu_call", work, out):
        folder.mkdir(parents=True)
    for file in (HERE / "gpu_call").glob("*.py"):
        (site / "gpu_call" / file.name).write_bytes(file.read_bytes())
    for name, body in BODIES.items():
        (site / "gpu_call" / f"{name}.py").write_text(HEAD + body + TAIL)
    return Run(out, work, tmp_path, "a driver", (site,), lambda line: None)


def run(running: Run, name: str, limit: float = 60.0) -> StepRecord:
    return running.step(Step(name, name, 1, 2, ""), limit)


def test_a_step_ends_as_done_skipped_or_failed_and_keeps_what_it_found(running: Run) -> None:
    good = run(running, "good")
    assert (good.status, good.reason, good.result) == ("done", "", {"found": 3, "left": True})
    skipped = run(running, "no_tool")
    assert (skipped.status, skipped.reason, skipped.result) == ("skipped", "there is no tool here", {})
    broken = run(running, "broken")
    assert (broken.status, broken.result) == ("failed", {"found": 1})
    assert broken.reason == "ended with code 1: RuntimeError: it does not work"
    for record in (good, skipped, broken):
        running.take(record)
    results = read_json(running.out / "results.json")
    assert [StepRecord.from_json(s) for s in results["steps"]] == [good, skipped, broken]
    assert (running.out / "report.md").read_text() == report(results)
    with zipfile.ZipFile(running.out / "logs.zip") as archive:
        assert {"good.json", "broken.log"} <= set(archive.namelist())


@pytest.mark.end_to_end
def test_what_a_step_has_found_so_far_is_written_while_it_runs(
    running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_call.run._TELL_S", 0.2)
    running.take(run(running, "good"))
    run(running, "endless", limit=6.0)
    # as it was when the step was killed
    steps = [StepRecord.from_json(s) for s in read_json(running.out / "results.json")["steps"]]
    assert [(s.step, s.status) for s in steps] == [("good", "done"), ("endless", "running")]
    assert (steps[1].result, steps[1].limit_s) == ({"found": 2}, 6.0)
    assert "| endless | running |" in (running.out / "report.md").read_text()


def test_what_is_no_number_is_null_and_costs_no_step(running: Run) -> None:
    record = run(running, "no_number")
    assert (record.status, record.result) == ("done", {"found": None, "deep": [{"a": None}], "good": 1.5})


def test_a_step_can_say_that_nothing_further_is_measured(running: Run) -> None:
    record = run(running, "hopeless")
    assert (record.status, record.reason, record.result["found"]) == ("failed", "nothing runs here", 4)


def test_libraries_do_not_take_the_gpu_s_memory_beforehand(running: Run) -> None:
    assert run(running, "settings").result["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_what_is_written_does_not_name_places(running: Run) -> None:
    """Whatever a step finds or prints: folders of the call, of Python and of the user, and the host, stay here."""
    host = socket.gethostname()
    secret = [str(running.work), str(running.out), str(ROOT), sys.prefix, str(Path.home()), host]
    (running.work / "calibration").mkdir()
    (running.work / "calibration" / "profile.json").write_text(f"made in {running.work} on {host}")
    (running.work / "leaky.log").write_text("\n".join(secret))
    running.take(StepRecord("leaky", "failed", f"no file {ROOT}/tests on {host}", result={"seen": secret}))
    with zipfile.ZipFile(running.out / "logs.zip") as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
    texts += [p.read_text() for p in running.out.iterdir() if p.suffix != ".zip"]
    assert len(texts) == 5
    for text in texts:
        # a name that may be a word of ours stays
        assert [s for s in secret if len(s) >= 6 and s in text] == []
    assert "no file CHECKOUT/tests on" in read_json(running.out / "results.json")["steps"][0]["reason"]


@given(st.lists(st.text("abc/", min_size=2, max_size=8), max_size=4), st.text("abc/ \n", max_size=60))
def test_no_place_is_left_in_a_text(folders: list[str], text: str) -> None:
    found = Places(dict.fromkeys(folders, "XX")).plain(text)
    assert not any(f in found for f in folders)
    assert Places({}).plain(text) == text


@pytest.mark.end_to_end
def test_a_step_that_does_not_end_is_killed_with_what_it_started(running: Run) -> None:
    record = run(running, "endless", limit=8.0)
    assert (record.status, record.reason, record.result) == ("failed", "killed after 8 s", {"found": 2})
    child = int((running.work / "endless" / "child").read_text())
    for _ in range(50):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("what the step started goes on")


@pytest.mark.end_to_end
def test_a_program_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    program = "print('so far', flush=True); import time; time.sleep(60)"
    ended = run_program([sys.executable, "-S", "-c", program], 2, cwd=tmp_path)
    assert (ended.code, ended.output) == (None, "so far\n")
    assert run_program([sys.executable, "-c", "raise SystemExit(3)"], 30, cwd=tmp_path).code == 3


def test_a_call_without_a_kit_or_with_an_unknown_step_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = tmp_path / "kit.zip"
    assert main([str(tmp_path / "out"), "--kit", str(absent)]) == 2
    assert capsys.readouterr().err == (
        f"tests/gpu/run.sh: {absent} cannot be read: No such file or directory; tests/gpu/prepare.py makes it\n"
    )
    names = ", ".join(s.name for s in STEPS)
    with pytest.raises(ValueError, match=f"^there is no step 'all'; there are {names}$"):
        call(tmp_path, absent, only=["all"])


def test_steps_for_which_no_time_is_left_are_skipped_with_that_reason(tmp_path: Path) -> None:
    kit = tmp_path / "kit.zip"
    write_kit(kit, Kit("today", "H200-SXM", "ptxas 13.0.88", ()), tmp_path)
    said: list[str] = []
    begun = time.monotonic() - 1000
    records = call(tmp_path / "out", kit, only=["correctness", "sanitizer"], begun=begun, say=said.append)
    assert [(r.step, r.status, r.reason) for r in records] == [
        ("correctness", "skipped", "only 0 s were left, and it needs 25"),
        ("sanitizer", "skipped", "only 0 s were left, and it needs 15"),
    ]
    assert said[0] == "correctness: skipped in 0 s: only 0 s were left, and it needs 25"


def test_where_there_is_no_gpu_the_call_says_so_and_ends(tmp_path: Path) -> None:
    from tinygpu.ptx.runtime.driver import available

    if available().present:
        pytest.skip("this machine has a GPU")
    kit = tmp_path / "kit.zip"
    write_kit(kit, Kit("today", "H200-SXM", "ptxas 13.0.88", ()), tmp_path)
    records = call(tmp_path / "out", kit, only=["environment", "correctness"], say=lambda line: None)
    assert [(r.step, r.status) for r in records] == [("environment", "failed"), ("correctness", "skipped")]
    assert records[0].reason.startswith("no kernel can be run here: ")
    assert records[1].reason == "environment says why nothing more is measured"
    assert "| environment | failed |" in (tmp_path / "out" / "report.md").read_text()


def test_tools_are_found_where_installers_put_them(tmp_path: Path) -> None:
    for version in ("2024.1", "2025.3"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a-tool-of-ours").write_text("#!/bin/sh\n")
        (tmp_path / version / "a-tool-of-ours").chmod(0o755)
    (tmp_path / "2025.3" / "no-program").write_text("")
    assert find_tool("a-tool-of-ours", [f"{tmp_path}/*"]) == f"{tmp_path}/2025.3/a-tool-of-ours"
    assert find_tool("no-program", [f"{tmp_path}/*"]) is None
    assert find_tool("sh", []) is not None


# -- files --------------------------------------------------------------------------------------------------------


def test_lines_that_were_cut_short_are_left_out_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n{"b": ')
    assert read_lines(path) == [{"a": 1}]
    lines = Lines(path)
    lines.write({"c": 2})
    lines.close()
    assert read_lines(path) == [{"a": 1}, {"c": 2}]
    assert read_lines(tmp_path / "absent") == []


def test_a_kit_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "a.bundle").write_bytes(b"bundle")
    job = Job("dense", "a case", "a.bundle", "matmul", 3, {"model": "M"}, ({"counter": "ctas", "value": 1.0},))
    kit = Kit("today", "H200-SXM", "ptxas 13.0.88", (job,), (("a", "was refused"),))
    size = write_kit(tmp_path / "kit.zip", kit, tmp_path)
    assert size == (tmp_path / "kit.zip").stat().st_size
    there = tmp_path / "there"
    opened = open_kit(tmp_path / "kit.zip", there)
    assert json.dumps(opened.to_json()) == json.dumps(kit.to_json())
    assert unpacked_kit(there).of("dense")[0].name == "a case"
    assert opened.of("correct") == ()
    assert (there / "a.bundle").read_bytes() == b"bundle"


def test_what_is_no_kit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kit.zip"
    path.write_text("no zip")
    with pytest.raises(NotAKit, match=r"kit.zip is no kit; tests/gpu/prepare.py makes one$"):
        open_kit(path, tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kit.json", '{"gpu_call_kit": 0}')
    with pytest.raises(NotAKit, match=r"is a kit of version 0, not 2: make it again with tests/gpu/prepare.py$"):
        open_kit(path, tmp_path)


def test_a_kit_that_grows_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_call.kit.MOST_BYTES", 100)
    (tmp_path / "a").write_bytes(bytes(1000))
    kit = Kit("today", "H200-SXM", "ptxas 13.0.88", (Job("dense", "d", "a", "m", 1),))
    with pytest.raises(ValueError, match=r"^the kit has [\d,]+ bytes, and 100 at most travel: ask for fewer kernels$"):
        write_kit(tmp_path / "kit.zip", kit, tmp_path)
    assert not (tmp_path / "kit.zip").exists()


# -- the table's process -------------------------------------------------------------------------------------------

JOBS = tuple(Job("matmuls", name, "f", "matmul", 2) for name in ("p", "q", "r"))


def test_a_kernel_that_brings_the_process_down_is_left_out_of_the_next_one() -> None:
    progress = Progress()
    told = [{"gpu": "G"}, {"begin": "p", "kernel": ""}, {"row": {"case": "p", "noise": 0.01}}]
    told += [{"begin": "q", "kernel": ""}, {"begin": "q", "kernel": "k1"}]
    progress.take(told, "its process ended with code -6")
    crashed = {"k1": "its process ended with code -6"}
    assert (list(progress.rows), progress.skip, progress.failed) == (["p"], {"q": crashed}, {})
    assert [j.name for j in progress.open(JOBS)] == ["q", "r"]
    assert progress.noise() == 0.01
    progress.take([{"begin": "q", "kernel": "k2"}, {"lost": "q", "sentence": "an illegal address"}], "")
    assert progress.skip == {"q": {**crashed, "k2": "an illegal address"}}
    progress.take([{"begin": "q", "kernel": "k3"}], "it did not end within 40 s")
    assert progress.starts["q"] == MOST_STARTS
    assert progress.failed == {"q": "it did not end within 40 s"}
    progress.take([{"begin": "r", "kernel": "k1"}], "the time was up")
    assert [j.name for j in progress.open(JOBS)] == ["r"]
    progress.take([{"begin": "r", "kernel": ""}, {"failed": "r", "sentence": "out of memory"}, {"end": True}], "")
    assert progress.failed["r"] == "out of memory"
    assert progress.open(JOBS) == []


def test_a_problem_that_fails_outside_of_our_kernels_is_given_up_at_once() -> None:
    progress = Progress()
    progress.take([{"begin": "p", "kernel": "k1"}, {"begin": "p", "kernel": ""}], "its process ended with code 1")
    assert (progress.failed, progress.skip) == ({"p": "its process ended with code 1"}, {})


@pytest.mark.parametrize(
    ("body", "seconds", "quiet", "how"),
    [
        ("pass", 30, 30, ""),
        ("raise SystemExit(5)", 30, 30, "its process ended with code 5"),
        ("time.sleep(60)", 30, 2, "it did not end within 2 s"),
        ("[(say('{}'), time.sleep(0.2)) for _ in range(300)]", 2, 30, "the time was up"),
    ],
)
@pytest.mark.end_to_end
def test_the_tables_process_is_watched(tmp_path: Path, body: str, seconds: float, quiet: float, how: str) -> None:
    lines = tmp_path / "lines"
    program = f"import time\nout = open({str(lines)!r}, 'a')\ndef say(t): out.write(t + chr(10)); out.flush()\n{body}"
    seen: list[int] = []
    command = [sys.executable, "-S", "-c", program]
    found = watch(command, lines, tmp_path / "log", seconds, quiet, lambda: seen.append(1))
    assert found == how
    assert bool(seen) == ("say(" in body)


# -- what is kept --------------------------------------------------------------------------------------------------


def results(rehearsal: bool = False) -> dict[str, object]:
    machine = {
        "date": "2026-01-02T03:04:05+00:00", "kit": "today", "rehearsal": rehearsal,
        "gpu": {"name": "NVIDIA H200", "sms": 132, "l2_bytes": 60 << 20, "driver": "13.0"},
    }  # fmt: skip
    steps = [StepRecord("environment", "done", result=machine)]
    return {"schema": "tinygpu-gpu-call/1", "steps": [s.to_json() for s in steps]}


def test_results_are_taken_into_the_pages(tmp_path: Path) -> None:
    folder, pages = tmp_path / "out", tmp_path / "results"
    folder.mkdir(), pages.mkdir()
    (pages / "README.md").write_text("# Results\n\n<!-- runs -->\nold\n<!-- /runs -->\n\nMore.\n")
    write_json(folder / "results.json", results())
    (folder / "profile.json").write_text("{}")
    first = collect(folder, pages)
    assert first == pages / "nvidia-h200" / "2026-01-02"
    assert sorted(p.name for p in first.iterdir()) == ["README.md", "profile.json", "results.json"]
    second = collect(folder, pages)
    assert second.name == "2026-01-02-2"
    page = (pages / "README.md").read_text()
    assert page.startswith("# Results\n\n<!-- runs -->\n| date | GPU |")
    assert page.endswith("<!-- /runs -->\n\nMore.\n")
    assert page.count("| [2026-01-02](nvidia-h200/2026-01-02") == 2


def test_what_was_not_measured_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(NotResults, match=r"holds no results.json of tests/gpu/run.sh$"):
        collect(tmp_path)
    write_json(tmp_path / "results.json", results(rehearsal=True))
    with pytest.raises(NotResults, match=r"holds a rehearsal: nothing in it was measured$"):
        collect(tmp_path)
    with pytest.raises(NotResults, match=r"^the page of results has no place for its table"):
        listed("no marks", "")
    assert slug("NVIDIA RTX PRO 6000 (Blackwell)") == "nvidia-rtx-pro-6000-blackwell"


def test_the_page_of_results_lists_what_is_there() -> None:
    from gpu_call.collect import BEGIN, END, RESULTS, runs

    page = (RESULTS / "README.md").read_text()
    assert page.partition(BEGIN)[2].partition(END)[0].strip() == runs(RESULTS)
