"""What other programs print, read: Nsight Compute's CSV in both shapes, the sanitizer's summaries, JUnit's XML."""

from pathlib import Path

import pytest
from gpu_call import ncu_output
from gpu_call.gpu_tests import outcomes
from gpu_call.ncu_output import compare, number, unknown_metrics
from gpu_call.sanitizer import complaints, findings
from gpu_call.step import last_json_line

WIDE = '''\
==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "axpby" - 0: 0%....50%....100% - 3 passes
{"wrong": "", "ctas": 64, "registers": 20}
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes_read.sum","launch__grid_size","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum","smsp__inst_executed.sum"
"","","","","","","","","","","","byte","","","inst"
"0","4242","python3","127.0.0.1","axpby","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","2,097,152","64","4,096","n/a"
"1","4242","python3","127.0.0.1","axpby","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","2097152","64","4096.5","98,304"
'''
LONG = '''\
==PROF== Disconnected from process 7
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","k","launch__grid_size","","64"
"0","7","k","dram__bytes_read.sum","byte","1,024"
"0","7","k","smsp__inst_executed.sum","inst","n/a"
'''


def test_a_column_for_each_metric_is_read() -> None:
    first, second = ncu_output.read(WIDE)
    assert first == {
        "dram__bytes_read.sum": 2097152.0, "launch__grid_size": 64.0,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 4096.0,
    }  # fmt: skip
    assert second["smsp__inst_executed.sum"] == 98304
    assert second["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 4096.5


def test_a_row_for_each_metric_is_read() -> None:
    assert ncu_output.read(LONG) == [{"launch__grid_size": 64.0, "dram__bytes_read.sum": 1024.0}]


def test_output_without_a_table_gives_nothing() -> None:
    assert ncu_output.read("==ERROR== The user does not have permission to access GPU Performance Counters") == []
    assert ncu_output.read("") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234.5", 1234.5), (" 7 ", 7.0), ("n/a", None), ("", None), ("(!) n/a", None), ("nan", None), ("many", None)],
)
def test_figures(text: str, value: float | None) -> None:
    assert number(text) == value


def test_metrics_that_it_does_not_know_are_found_in_its_complaint() -> None:
    asked = ["sm__a_b.sum", "lts__c.sum", "launch__grid_size"]
    assert unknown_metrics("==ERROR== Failed to find metric sm__a_b.sum\n==PROF== x", asked) == ["sm__a_b.sum"]
    text = "==WARNING== Metrics lts__c.sum, sm__a_b.sum were not found\n==ERROR== metric other__m.sum"
    assert unknown_metrics(text, asked) == ["lts__c.sum", "sm__a_b.sum"]
    assert unknown_metrics("==ERROR== The application returned an error code (1).", asked) == []


def test_the_profiler_leaves_clocks_alone_and_looks_at_one_launch() -> None:
    words = ncu_output.command("ncu", "k", ["a__b.sum", "c__d.sum"], ["python3", "x"])
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--launch-count") + 1] == "1"
    assert words[words.index("--metrics") + 1 :] == ["a__b.sum,c__d.sum", "python3", "x"]


def test_counters_are_compared_with_the_sums_of_their_metrics() -> None:
    def entry(counter: str, value: float, relation: str, *metrics: str) -> dict[str, object]:
        return {"counter": counter, "value": value, "relation": relation, "metrics": metrics, "note": ""}

    found = compare(
        [
            entry("loads", 10.0, "same", "a", "b"), entry("stores", 4.0, "same", "c"), entry("other", 3.0, "same", "d"),
            entry("instructions", 8.0, "compiled", "e"), entry("none", 0.0, "same", "e"),
        ],
        {"a": 7.0, "b": 3.0, "c": 5.0, "e": 4.0},
    )  # fmt: skip
    assert [(c.measured, c.verdict, c.ratio) for c in found] == [
        (10.0, "equal", 1.0), (5.0, "differs", 1.25), (None, "not measured", None), (4.0, "beside", 0.5),
        (4.0, "differs", None),
    ]  # fmt: skip


MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at axpby+0x1b0
=========     by thread (32,0,0) in block (12,0,0)
========= ERROR SUMMARY: 3 errors
"""


def test_sanitizer_summaries() -> None:
    assert findings(MEMCHECK) == 3
    assert findings("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors") == 0
    assert findings("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)") == 2
    assert findings("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)") == 0
    assert findings("========= Error: Device not supported") is None
    assert complaints(MEMCHECK) == [
        "Invalid __global__ write of size 4 bytes", "at axpby+0x1b0", "by thread (32,0,0) in block (12,0,0)"
    ]  # fmt: skip


def test_outcomes_of_tests() -> None:
    text = """<testsuites><testsuite><testcase name="a" classname="t"/>
      <testcase name="b"><failure message="assert 1 == 2&#10;more">long</failure></testcase>
      <testcase name="c"><skipped message="no GPU"/></testcase>
      <testcase name="d"><error>Traceback
      x</error></testcase></testsuite></testsuites>"""
    assert outcomes(text) == {
        "a": {"outcome": "passed", "why": ""}, "b": {"outcome": "failed", "why": "assert 1 == 2"},
        "c": {"outcome": "skipped", "why": "no GPU"}, "d": {"outcome": "error", "why": "Traceback"},
    }  # fmt: skip


def test_the_last_line_of_json_is_found_among_others(tmp_path: Path) -> None:
    assert last_json_line('x\n{"a": 1}\n{"b": 2}\n{broken\n==PROF==') == {"b": 2}
    assert last_json_line("nothing") == {}
