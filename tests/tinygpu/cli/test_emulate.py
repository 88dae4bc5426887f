"""`tinygpu emulate`: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tinygpu.api.arguments import read_arguments
from tinygpu.api.emulate import compare
from tinygpu.cli import main, printing
from tinygpu.ptx.emulator import Report
from tinygpu.ptx.emulator.source.parser import parse

ROOT = Path(__file__).parents[3]
ADD = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<5>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r5, %r3, %r4, %r2;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra DONE;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd1, %rd1, %rd3;
    add.u64 %rd2, %rd2, %rd3;
    ld.global.f32 %f1, [%rd1];
    add.f32 %f2, %f1, 0f3F800000;
    st.global.f32 [%rd2], %f2;
DONE:
    ret;
}
"""
LAUNCH = ("--grid", "2", "--block", "64")
GOOD = ("--arg", "x=arange:f32[100]", "--arg", "y=empty:f32[100]", "--arg", "n=100")


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, and what it printed."""

    status: int
    out: str
    err: str


class Shell:
    """Runs `tinygpu emulate` in this process, in a folder with add.ptx."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: str) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["tinygpu", "emulate", *words])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        printed = self._capsys.readouterr()
        return Ended(status, re.sub(r"\d+\.\d\d s\b", "N s", printed.out), printed.err)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    (tmp_path / "add.ptx").write_text(ADD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(printing.console, "width", 160)
    return Shell(monkeypatch, capsys)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_kernel_that_is_right(shell: Shell) -> None:
    ended = shell("add.ptx", *LAUNCH, *GOOD, "--save", "y=y.npy")
    assert (ended.status, ended.err) == (0, "")
    assert lines(ended.out) == [
        "add: emulated in N s, no fault",
        "CTAs 2   warp instructions 64   thread instructions 1,880 (29.4 of 32 lanes)",
        "branches 4 (1 divergent)   barriers 0 (warps)",
        "by class: memory 20, integer 16, move 12, control 8, compare 4, float 4",
        "memory         requests  bytes     counted  per request",
        "global loads          4    400  13 sectors         3.25",
        "global stores         4    400  13 sectors         3.25",
        "wrote y.npy",
    ]
    assert (np.load("y.npy") == np.arange(100, dtype=np.float32) + 1).all()


def test_a_kernel_that_goes_too_far(shell: Shell) -> None:
    ended = shell("add.ptx", *LAUNCH, "--arg", "zeros:f32[100]", "--arg", "zeros:f32[100]", "--arg", "110")
    assert (ended.status, ended.err) == (1, "")
    address = re.findall(r"address (0x[0-9a-f]+)", ended.out)
    helps = "compare the index with the size before the access, or pass the size that the buffer really has"
    assert lines(ended.out)[:9] == [
        "out of bounds at PTX line 20, CTA (1, 0, 0), thread (36, 0, 0), and 9 threads more",
        "    ld.global.f32 %f1, [%rd1];",
        f"    load of 4 bytes at global address {address[0]} is out of bounds: x has 400 bytes, and this is byte 400 "
        "to 403 of it",
        f"    fix: {helps}",
        "out of bounds at PTX line 22, CTA (1, 0, 0), thread (36, 0, 0), and 9 threads more",
        "    st.global.f32 [%rd2], %f2;",
        f"    store of 4 bytes at global address {address[1]} is out of bounds: y has 400 bytes, and this is byte "
        "400 to 403 of it",
        f"    fix: {helps}",
        "add: emulated in N s, 2 faults",
    ]
    first = shell("add.ptx", *LAUNCH, "--arg", "zeros:f32[100]", "--arg", "1", "--arg", "110", "--check", "raise")
    assert first.status == 1
    assert [line for line in lines(first.out) if not line.startswith(" ")] == [
        "out of bounds at PTX line 20, CTA (1, 0, 0), thread (36, 0, 0), and 9 threads more",
        "add stopped at its first fault after N s",
    ]


def test_lines_are_counted_on_demand(shell: Shell) -> None:
    ended = shell("add.ptx", *LAUNCH, *GOOD, "--lines")
    assert ended.status == 0
    table = lines(ended.out)[7:]
    assert table[0].split() == ["line", "executed", "lanes", "requests", "sectors", "wavefronts", "bytes", "PTX"]
    assert [" ".join(row.split()) for row in table if "global" in row] == [
        "20 4 25.0 4 13 400 ld.global.f32 %f1, [%rd1];",
        "22 4 25.0 4 13 400 st.global.f32 [%rd2], %f2;",
    ]
    assert len(table) == 1 + 16


def test_some_ctas_of_a_huge_array(shell: Shell) -> None:
    huge = ("--arg", "sparse:f32[4294967296] windows=0..64,-64..") * 2
    words = ("--grid", "67108864", "--block", "64", *huge, "--arg", "u32:4294967295")
    assert shell("add.ptx", *words, "--ctas", "first,last").status == 0
    ended = shell("add.ptx", *words, "--ctas", "first,1")
    assert ended.status == 1
    assert lines(ended.out)[0] == (
        "outside backed windows at PTX line 20, CTA (1, 0, 0), thread (0, 0, 0), and 63 threads more"
    )


def test_a_device_gives_traffic(shell: Shell) -> None:
    ended = shell("add.ptx", *LAUNCH, *GOOD, "--device", "a100")
    assert ended.status == 0
    assert lines(ended.out)[7:] == [
        "L1: 13 sectors asked for, 0.0 % there",
        "L2: 13 sectors asked for, 0.0 % there; 13 stored, 0 updated",
        "DRAM: 416 bytes read, 416 written (416 of them at the end)",
    ]
    data = json.loads(shell("add.ptx", *LAUNCH, *GOOD, "--device", "a100", "--json").out)
    assert data["traffic"]["caches"] == {"l1_bytes": 191 * 1024, "l2_bytes": 40 << 20, "sms": 108, "ctas_per_sm": 1}
    assert Report.from_dict(data).traffic is not None


def test_json_is_the_report_with_comparisons(shell: Shell) -> None:
    np.save("want.npy", np.arange(100, dtype=np.float32) + 1)
    ended = shell("add.ptx", *LAUNCH, *GOOD, "--json", "--compare", "y=want.npy")
    assert ended.status == 0
    data = json.loads(ended.out)
    report = Report.from_dict(data)
    assert report.counters.global_load_sectors == 13
    assert report.lines[20].bytes == 400
    assert data["comparisons"] == [
        {
            "name": "y", "elements": 100, "wrong": 0, "first": None, "found": None, "wanted": None, "max_error": 0.0,
            "rtol": 1e-5, "atol": 1e-5, "ok": True,
        }
    ]  # fmt: skip
    stopped = shell("add.ptx", *LAUNCH, "--arg", "null", "--arg", "null", "--arg", "9", "--json", "--check", "raise")
    assert stopped.status == 1
    assert [f["kind"] for f in json.loads(stopped.out)["faults"]] == ["out of bounds"]


def test_wrong_values_end_with_1(shell: Shell) -> None:
    want = np.arange(100, dtype=np.float32) + 1
    np.save("want.npy", want)
    ended = shell("add.ptx", *LAUNCH, *GOOD, "--compare", "y=want.npy")
    assert ended.status == 0
    assert lines(ended.out)[-1] == "y: all 100 elements agree within 1e-05 of the value plus 1e-05, max error 0"
    want[[7, 9]] += 1
    np.save("want.npy", want)
    ended = shell("add.ptx", *LAUNCH, *GOOD, "--compare", "y=want.npy")
    assert ended.status == 1
    assert lines(ended.out)[-1] == (
        "y: 2 of 100 elements do not agree within 1e-05 of the value plus 1e-05; the first is [7] with 8, where 9 is "
        "wanted"
    )
    assert shell("add.ptx", *LAUNCH, *GOOD, "--compare", "y=want.npy", "--atol", "1").status == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("none.ptx", *LAUNCH, *GOOD), "none.ptx cannot be read: No such file or directory"),
        (
            ("add.ptx", "two.ptx", *LAUNCH, *GOOD),
            "one PTX file at a time can be run, not 2: link them into one module first",
        ),
        (
            ("add.ptx", "--grid", "2,x", "--block", "64"),
            "--grid takes one to three numbers from 1 on, as in 64,64, not '2,x'",
        ),
        (
            ("add.ptx", "--grid", "2", "--block", "0"),
            "--block takes one to three numbers from 1 on, as in 64,64, not '0'",
        ),
        (
            ("add.ptx", "--grid", "2", "--block", "2048", *GOOD),
            "block (2048, 1, 1) has 2048 threads, but a CTA has at most 1024",
        ),
        (("add.ptx", *LAUNCH, *GOOD, "--check", "some"), "--check is raise, collect or off, not 'some'"),
        (("add.ptx", *LAUNCH, *GOOD, "-d", "a100", "--ctas-per-sm", "0"), "ctas_per_sm must be at least 1, not 0"),
        (("add.ptx", *LAUNCH, *GOOD, "--order", "now"), "--order is late, early, random or spurious, not 'now'"),
        (("add.ptx", *LAUNCH, *GOOD, "--entry", "sub"), "this PTX has no entry 'sub'; it has add"),
        (
            ("add.ptx", *LAUNCH, *GOOD, "--ctas", "2nd"),
            "--ctas takes first, last and numbers, separated by commas, not '2nd'",
        ),
        (("add.ptx", *LAUNCH, *GOOD, "--save", "y"), "--save takes name=FILE.npy, not 'y'"),
        (("add.ptx", *LAUNCH, *GOOD, "--save", "y=y.txt"), "--save takes name=FILE.npy, not 'y=y.txt'"),
        (("add.ptx", *LAUNCH, *GOOD, "--save", "y=y.npy", "--save", "y=z.npy"), "--save gives y twice"),
        (("add.ptx", *LAUNCH, *GOOD, "--save", "y=no/y.npy"), "there is no folder no"),
        (("add.ptx", *LAUNCH, *GOOD, "--save", "z=z.npy"), "no argument called 'z' is an array; there are x, y"),
        (("add.ptx", *LAUNCH, *GOOD, "--compare", "y=none.npy"), "there is no file none.npy"),
        (("add.ptx", *LAUNCH, *GOOD, "--compare", "y=short.npy"), "y has shape [100], but short.npy has [2]"),
        (
            ("add.ptx", *LAUNCH, "--arg", "x=zeros:f32[4]"),
            "add takes 3 arguments: x (.u64: 8 bytes, a pointer or a number), y (.u64: 8 bytes, a pointer or a "
            "number), n (.u32: 4 bytes); give y, n with --arg, as in --arg y=...",
        ),
        (
            ("add.ptx", *LAUNCH, "--arg", "1", "--arg", "1", "--arg", "zeros:f32[4]"),
            "n is a parameter of 4 bytes and cannot take a buffer's address",
        ),
        (("bad.ptx", *LAUNCH), "PTX line 5, column 1: the text ends inside the body of k"),
        (("odd.ptx", *LAUNCH), "PTX line 6: the emulator has no semantics for `frobnicate.b32`"),
        (("binary.ptx", *LAUNCH), "binary.ptx is no text in UTF-8: byte 4 is 0xff"),
        (("two.ptx", *LAUNCH), "this PTX has 2 entries (add, other): say which with --entry"),
    ],
)
def test_input_that_cannot_be_run_ends_with_2_and_a_sentence(
    shell: Shell, words: tuple[str, ...], sentence: str
) -> None:
    head = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{"
    np.save("short.npy", np.zeros(2, np.float32))
    Path("bad.ptx").write_text(head)
    Path("odd.ptx").write_text(head + "\nfrobnicate.b32 1, 1;\nret;\n}\n")
    Path("binary.ptx").write_bytes(b"\x7fELF\xff\xfe")
    Path("two.ptx").write_text(ADD + ADD[ADD.index(".visible") :].replace("entry add", "entry other"))
    ended = shell(*words)
    assert ended == Ended(2, "", f"tinygpu: {sentence}\n")
    assert not list(Path().glob("y.*"))


def test_integers_are_compared_exactly_and_nan_equals_nan(tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", np.array([1, 2], np.int32))
    result = compare("i", np.array([1, 3], np.int32), tmp_path / "i.npy")
    assert str(result) == "i: 1 of 2 elements do not agree exactly; the first is [1] with 3, where 2 is wanted"
    np.save(tmp_path / "f.npy", np.array([[np.nan, np.inf]]))
    assert compare("f", np.array([[np.nan, np.inf]]), tmp_path / "f.npy").ok
    assert not compare("f", np.array([[1.0, np.inf]]), tmp_path / "f.npy").ok
    assert not compare("f", np.array([[np.nan, -np.inf]]), tmp_path / "f.npy", rtol=0.5).ok


def test_the_command_of_the_readme_prints_what_the_readme_shows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```console\n(tinygpu emulate .*?)```\n```text\n(.*?)```", page, re.DOTALL)
    assert found is not None
    monkeypatch.chdir(ROOT)
    ended = shell(*shlex.split(found[1].replace("\\\n", " "))[2:])
    assert ended.status == 1
    shown = [line for line in lines(re.sub(r"\d+\.\d\d s\b", "N s", found[2])) if line != "..."]
    printed = lines(ended.out)
    assert [line for line in shown if line not in printed] == []


def test_the_commands_of_the_emulators_page_run(shell: Shell) -> None:
    page = (ROOT / "docs" / "emulator.md").read_text(encoding="utf-8")
    commands = re.findall(r"```console\n(tinygpu emulate .*?)```", page, re.DOTALL)
    assert commands
    for command in commands:
        ended = shell(*shlex.split(command.replace("\\\n", " "))[2:])
        assert (ended.status, ended.err) == (0, "")


def test_every_way_to_write_an_argument_on_the_emulators_page_can_be_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "emulator.md").read_text(encoding="utf-8")
    table = page[page.index("| value | argument |") : page.index("The types are")]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    written = [spec for row in rows for spec in re.findall(r"`(.*?)`", row)]
    assert len(written) > 15
    np.save(tmp_path / "x.npy", np.zeros(8, np.int16))
    kinds = {"b": ".align 64 .b8 v[128]", "n": ".u64 v"}
    for spec in written:
        spec = spec + "f32[8]" if spec.endswith(":") else spec.replace("x.npy", f"{tmp_path}/x.npy")
        spec = spec.replace("random:f16[256,256] box", "zeros:f16[256,256] box")
        parameter = ".f32 v" if spec in ("0.5", "f32:0.5") else kinds["b" if spec.startswith("tensormap") else "n"]
        head = ".version 8.0\n.target sm_90\n.address_size 64\n"
        text = f"{head}.entry k(.param .u64 a, .param {parameter}) {{ ret; }}\n"
        values = read_arguments(parse(text).functions[0], ["a=zeros:f16[256,256]", f"v={spec}"]).values
        assert len(values) == 2
