"""What a report gives to paste shows the failure again, in a process that knows nothing of the check."""

import subprocess
import sys
import textwrap

import pytest

from tinygpu.api.machines import family
from tinygpu.ptx.verification.plan import RUNS
from tinygpu.testing.check import run_check

TWICE = '''
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


class Twice(Machine):
    """y = 2 x"""

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)
    warps = Param(1, 2)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p):
        shape = (self.warps * 32,)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), blocked(shape, threads=shape[0], vector=1))
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.add, x, x))

    @staticmethod
    def reference(x):
        return 3 * x
'''


@pytest.fixture
def report(tmp_path):
    place = tmp_path / "wrong twice.py"
    place.write_text(textwrap.dedent(TWICE))
    yield run_check(family(f"{place}:Twice").machines[0], tiers=(5,))
    sys.modules.pop("tinygpu_user_wrong twice", None)


@pytest.mark.end_to_end
def test_a_snippet_shows_the_failure_of_a_file_again(report, tmp_path):
    (failure,) = report.failures
    again = subprocess.run([sys.executable, "-c", failure.snippet], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    measured = failure.sentence.partition("WRONG in")[2]
    assert measured
    assert measured in again.stdout


def test_the_words_that_name_a_run_are_explained_where_one_is_wrong(report):
    assert f"\nA run is named by {RUNS}.\n" in str(report)


def test_a_machine_of_the_package_is_imported_by_its_name():
    from tinygpu.machines.matmul_simt import MatmulSimt
    from tinygpu.testing.case import import_lines

    assert import_lines(MatmulSimt) == ["from tinygpu.machines.matmul_simt import MatmulSimt"]
