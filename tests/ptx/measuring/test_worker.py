"""The worker as a program: kernels that are wrong, fault, hang or crash cost themselves alone; a killed run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_kernels import add_bundle, add_ptx

from tinygpu.search.measured import load_results

pytestmark = pytest.mark.end_to_end

pytest.importorskip("cuda.bindings.driver")
FAKE = Path(__file__).parents[1] / "fake"


def worker(bundle: Path, *words: str) -> list[str]:
    options = ["--samples", "12", "--limit", "5", *words]
    if "--driver" not in words:
        options += ["--driver", "fake_cuda"]
    return [sys.executable, "-m", "tinygpu.ptx.measuring", str(bundle), *options]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*[p for p in sys.path if p], str(FAKE)])}


def run(bundle: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # not from the repository's root, where the folder tinygpu stands before the package
    return subprocess.run(
        worker(bundle, *words), env=environment(), cwd=bundle.parent, capture_output=True, text=True, timeout=120
    )


def lines_of(bundle: Path) -> list[dict[str, Any]]:
    path = bundle.with_name(bundle.name + ".results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_kernel(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {line["kernel"]: line for line in lines if "status" in line}


KERNELS = {
    "k0": add_ptx("fake: us=100"),
    "k1_wrong": add_ptx(last="sub.f32 %f0, %f0, %f2;"),
    "k2_outside": add_ptx(offset=1 << 30),
    "k3_hangs": add_ptx("fake: hang"),
    "k5_aborts": add_ptx("fake: abort"),
    "k6_faults_timed": add_ptx("fake: error CUDA_ERROR_ILLEGAL_INSTRUCTION timed"),
    "k8_behind": add_ptx(offset=4),
    "k9_fast": add_ptx("fake: us=50"),
    "k10_slow": add_ptx("fake: us=900"),
    "k11_same": add_ptx("fake: us=50\n// under another name"),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with every kind of kernel, measured."""
    bundle = tmp_path_factory.mktemp("worker") / "kinds.bundle"
    add_bundle(bundle, KERNELS)
    done = run(bundle, "--limit", "2")
    assert done.returncode == 0, done.stderr
    return bundle


def test_what_befalls_a_kernel_is_recorded_as_its_own(measured: Path) -> None:
    found = by_kernel(lines_of(measured))
    assert list(found) == list(KERNELS)
    failures = {name: (f["failure"]["kind"], f["failure"]["sentence"]) for name, f in found.items() if "failure" in f}
    wrong = failures.pop("k1_wrong")
    assert wrong[0] == "wrong"
    assert wrong[1].startswith("y[0] is ")
    assert wrong[1].endswith("(integers inputs); 1,000 of 1,000 elements are wrong")
    behind = failures.pop("k8_behind")
    assert behind[0] == "wrong"
    assert failures == {
        "k2_outside": (
            "fault",
            "cuLaunchKernelEx returned CUDA_ERROR_ILLEGAL_ADDRESS: a kernel touched memory that is not its own",
        ),
        "k3_hangs": ("hang", "it did not end within 2 s"),
        "k5_aborts": ("crash", "its process was ended by SIGABRT (Aborted)"),
        "k6_faults_timed": (
            "fault",
            "cuGraphLaunch returned CUDA_ERROR_ILLEGAL_INSTRUCTION: "
            "a kernel ran what the GPU does not have, or a descriptor is wrong",
        ),
    }


def test_the_others_are_measured_all_the_same(measured: Path) -> None:
    found = by_kernel(lines_of(measured))
    assert found["k0"]["cold"]["median"] == pytest.approx(100e-6, rel=0.02)
    assert found["k9_fast"]["cold"]["median"] == pytest.approx(50e-6, rel=0.02)
    assert (found["k9_fast"]["against"], found["k9_fast"]["verdict"]) == ("k0", "faster")
    assert found["k9_fast"]["relative"] == pytest.approx(0.5, rel=0.02)
    assert (found["k11_same"]["against"], found["k11_same"]["verdict"]) == ("k9_fast", "tie")
    assert found["k10_slow"]["verdict"] == "slower"
    assert found["k10_slow"]["cold"]["count"] == 8  # the race was lost
    assert found["k10_slow"]["warm"] is None
    for name in ("k0", "k9_fast", "k11_same"):
        assert found[name]["cold"]["count"] == 12
        assert found[name]["clocks"] == {"before": None, "after": None}
        assert found[name]["registers"] == 64


def test_the_file_says_what_was_measured_where_and_how(measured: Path) -> None:
    head, *rest = lines_of(measured)
    assert (head["title"], head["device"], head["made"]) == ("small sums", "H200-SXM", "by hand")
    assert (head["gpu"]["name"], head["gpu"]["driver"]) == ("NVIDIA H200", "13.0")
    assert head["protocol"]["samples"] == 12
    assert head["inputs"] == "uniform in [-1, 1); integers from -3 to 3 for integer types"
    assert [line["begin"] for line in rest if "begin" in line] == list(KERNELS)
    assert sum("noise" in line for line in rest) == 1
    finals = [line["final"] for line in rest if "final" in line]
    assert [(f["kernel"], f["against"]) for f in finals] == [(f["kernel"], "k9_fast") for f in finals]
    assert {f["kernel"]: f["verdict"] for f in finals} == {"k0": "slower", "k10_slow": "slower", "k11_same": "tie"}
    assert "end" in rest[-1]


def test_search_reads_what_the_worker_writes(measured: Path) -> None:
    results = load_results(measured.with_name("kinds.bundle.results.jsonl"))
    assert [m.kernel for m in results.ranked()][:2] == ["k9_fast", "k11_same"]
    assert [m.kernel for m in results.ties()] == ["k11_same"]
    assert results.said.startswith("measured on NVIDIA H200, driver 13.0, 20")
    failed = [m for m in results.measurements if m.failure is not None]
    assert len(failed) == 6
    recipe = results.best("Add", {"dims": {"n": 1000}}, "H200-SXM")
    assert recipe is not None
    assert recipe.point == {"number": 7}


def test_a_finished_file_is_continued_without_measuring_again(measured: Path) -> None:
    before = by_kernel(lines_of(measured))
    begun = time.monotonic()
    done = run(measured, "--limit", "2")
    assert done.returncode == 0, done.stderr
    assert by_kernel(lines_of(measured)) == before
    assert sum("begin" in line for line in lines_of(measured)) == len(KERNELS)
    assert "resumed" in lines_of(measured)[-2]
    assert time.monotonic() - begun < 60
    assert done.stdout.splitlines()[-1].endswith("kinds.bundle.results.jsonl: 4 of 10 kernels measured")


def whole_lines(path: Path) -> list[str]:
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


def start_and_kill(bundle: Path, kernel: str, times: int) -> None:
    """Starts the worker, and kills it as soon as it has begun a kernel for the given time."""
    path = bundle.with_name(bundle.name + ".results.jsonl")
    process = subprocess.Popen(
        worker(bundle, "--limit", "100"), env=environment(), cwd=bundle.parent, stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            begun = [line for line in map(json.loads, whole_lines(path)) if line.get("begin") == kernel] if (
                path.exists()
            ) else []
            if len(begun) >= times:
                break
            time.sleep(0.05)
        else:
            pytest.fail("the worker did not begin the kernel")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_a_worker_that_is_killed_goes_on_and_gives_up_what_kills_it(tmp_path: Path) -> None:
    bundle = tmp_path / "killed.bundle"
    add_bundle(bundle, {"k0": add_ptx(), "k1": add_ptx("fake: hang"), "k2": add_ptx("fake: us=80")})
    start_and_kill(bundle, "k1", 1)
    first = by_kernel(lines_of(bundle))
    assert list(first) == ["k0"]
    start_and_kill(bundle, "k1", 2)
    # a kill can cut a line short
    path = bundle.with_name("killed.bundle.results.jsonl")
    path.write_bytes(path.read_bytes() + b'{"kernel": "k1", "sta')
    done = run(bundle)
    assert done.returncode == 0, done.stderr
    found = by_kernel(lines_of(bundle))
    assert found["k0"] == first["k0"]
    assert found["k1"]["failure"] == {"kind": "crash", "sentence": "the worker itself ended 2 times while it ran"}
    assert found["k2"]["verdict"] == "faster"
    assert sum("noise" in line for line in lines_of(bundle)) == 1
    assert not children_of_workers(bundle)


def test_when_the_time_is_up_the_rest_waits_for_the_next_call(tmp_path: Path) -> None:
    bundle = tmp_path / "late.bundle"
    add_bundle(bundle, {"k0": add_ptx(), "k1": add_ptx("fake: us=80")})
    done = run(bundle, "--budget", "0")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "the time is up after 0 kernels; call again for the others"
    assert not any("begin" in line or "end" in line for line in lines_of(bundle))
    done = run(bundle)
    assert done.returncode == 0, done.stderr
    assert by_kernel(lines_of(bundle))["k1"]["verdict"] == "faster"
    assert "end" in lines_of(bundle)[-1]


def children_of_workers(bundle: Path) -> list[str]:
    """Processes that still measure this bundle; those of a killed worker leave by themselves."""
    for _ in range(50):
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = entry.read_bytes()
            except OSError:
                continue
            if b"measuring.child" in command and str(bundle.parent).encode() in _folder_of(entry.parent):
                found.append(command.decode())
        if not found:
            return []
        time.sleep(0.1)
    return found


def _folder_of(process: Path) -> bytes:
    try:
        return os.readlink(process / "cwd").encode()
    except OSError:
        return b""


def test_a_machine_without_a_gpu_says_so_at_once(tmp_path: Path) -> None:
    from tinygpu.ptx.runtime.driver import available

    if available().present:
        pytest.skip("this machine has a GPU")
    bundle = tmp_path / "one.bundle"
    add_bundle(bundle, {"k0": add_ptx()})
    done = run(bundle, "--driver", "cuda.bindings.driver")
    assert done.returncode == 1
    assert done.stderr.startswith("worker: there is no CUDA driver: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "one.bundle.results.jsonl").exists()


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    broken, absent = tmp_path / "broken", tmp_path / "absent"
    broken.write_text("nothing")
    done = run(broken)
    sentence = f"worker: {broken} is no zip file, or damaged: File is not a zip file\n"
    assert (done.returncode, done.stderr) == (2, sentence)
    done = run(absent)
    assert (done.returncode, done.stderr) == (2, f"worker: {absent} cannot be read: No such file or directory\n")


def test_importing_the_worker_loads_numpy_and_nothing_heavier() -> None:
    program = "import sys, tinygpu.ptx.measuring.worker, tinygpu.ptx.measuring.child; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in printed.split()}
    assert "numpy" in loaded
    assert loaded & {"z3", "sympy", "rich", "typer", "ml_dtypes", "cuda", "hypothesis", "pytest"} == set()
    assert not any(name.startswith(("tinygpu.language", "tinygpu.search")) for name in printed.split())


def test_the_worker_runs_where_only_numpy_and_the_bindings_are(tmp_path: Path) -> None:
    """Everything else that tinyGPU needs is hidden from the worker and from its child."""
    bundle = tmp_path / "one.bundle"
    add_bundle(bundle, {"k0": add_ptx(), "k1": add_ptx("fake: exit 7 timed")})
    hidden = tmp_path / "hidden"
    for name in ("z3", "sympy", "rich", "typer"):
        (hidden / name).mkdir(parents=True)
        (hidden / name / "__init__.py").write_text("raise ImportError('this machine does not have it')")
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(hidden), env["PYTHONPATH"]])
    done = subprocess.run(worker(bundle), env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = by_kernel(lines_of(bundle))
    assert found["k0"]["status"] == "measured"
    assert found["k1"]["failure"] == {"kind": "crash", "sentence": "its process ended with status 7"}
