"""Counters beside those of a chip: names that exist here, names that look right there, and the page's table."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tinygpu.ptx.emulator import Counters, Report
from tinygpu.ptx.emulator.hardware_counters import HARDWARE_COUNTERS, RELATIONS, HardwareCounter, hardware_table
from tinygpu.ptx.emulator.state.caches import Caches, Traffic

DOC = Path(__file__).parents[3] / "docs" / "emulator.md"
# unit__[subunit_]quantity[_qualifiers].rollup, or launch__attribute (Kernel Profiling Guide, "Metrics Structure").
METRIC = re.compile(r"(sm|smsp|l1tex|lts|dram)__\w+\.(sum|ratio)|launch__\w+")


@pytest.mark.parametrize("entry", HARDWARE_COUNTERS, ids=lambda entry: entry.counter)
def test_every_entry_reads_a_counter_and_names_metrics(entry: HardwareCounter) -> None:
    traffic = Traffic(Caches(128, 32, 1), 1, 2, 3, 4, 5, 6, 7, 9, 8)
    report = Report("k", (), (), Counters(), {}, {}, traffic)
    value = entry.value(report)
    assert isinstance(value, float)
    assert (value > 0) is (entry.relation == "model")
    assert (entry.value(Report("k", (), (), Counters(), {})) is None) is (entry.relation == "model")
    assert entry.relation in RELATIONS
    assert all(METRIC.fullmatch(metric) for metric in entry.metrics)


def test_every_request_sector_and_wavefront_has_its_metric() -> None:
    mapped = {entry.counter for entry in HARDWARE_COUNTERS}
    counted = {f.name for f in fields(Counters) if f.name.endswith(("_requests", "_sectors", "_wavefronts"))}
    # Sums of others, and operations of the copy engine, of which the chip counts bytes.
    counted -= {"atomic_requests", "local_requests", *(f"bulk_{what}_requests" for what in ("load", "store", "reduce"))}
    assert counted - mapped == set()
    moved = {f.name for f in fields(Traffic) if f.name.endswith("_sectors")}
    assert moved - mapped == set()


def test_no_counter_is_mapped_twice() -> None:
    names = [entry.counter for entry in HARDWARE_COUNTERS]
    assert len(set(names)) == len(names)


def test_the_table_of_the_page_is_generated() -> None:
    (table,) = re.findall(r"<!-- hardware -->\n(.*?)\n<!-- /hardware -->", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert table == hardware_table()
