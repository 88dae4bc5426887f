"""The law of files: whatever is cut, flipped or changed in type, a reader gives one sentence or a value, nothing else.

Where the product sealed what it wrote, a changed byte gives the sentence or an equal value. Two seconds of CPU time and
500 MB are the most that it may take.
"""

import json
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import damage
import pytest
from specimens import SPECIMENS, Specimen

from tinygpu.files import FileError

ROOT = Path(__file__).parents[3]
MOST_SECONDS, MOST_BYTES = 2, 500 * 2**20


@contextmanager
def bounded() -> Iterator[None]:
    """Ends what takes more than two seconds of this process's own time."""

    def too_long(*_: object) -> None:
        raise TimeoutError(f"it takes more than {MOST_SECONDS} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def is_part(specimen: Specimen, found: Any, whole: Any) -> bool:
    """Equal; of a file that grows, what stood before the damage; of a cache, nothing that was not kept."""
    if specimen.keeps:
        return bool(found == whole[: len(found)])
    if specimen.name == "cache":
        return all(f is None or f == w for f, w in zip(found, whole, strict=True))
    return bool(found == whole)


def hurt(specimen: Specimen, data: bytes, folder: Path, seed: str, count: int) -> None:
    """Damages of one specimen, each read anew."""
    rng = random.Random(seed)
    original = folder / f"whole{specimen.suffix}"
    original.write_bytes(data)
    whole = specimen.read(original)
    for number in range(count):
        here = folder / str(number)
        here.mkdir()
        path = here / f"damaged{specimen.suffix}"
        by_bytes = specimen.kind == "bytes" or rng.random() < 0.5
        if by_bytes:
            path.write_bytes(rng.choice(damage.BYTES)(data, rng))
        elif specimen.kind == "zip":
            path.write_bytes(damage.repacked(data, lambda name, member: changed_member(name, member, rng)))
        else:
            plain = data if specimen.kind == "lines" else b" ".join(data.split(b"\n"))
            path.write_bytes(damage.change_line(damage.without_seals(plain), rng))
        before = path.read_bytes()
        try:
            with bounded():
                found = specimen.read(path)
        except FileError as refused:
            check_refusal(specimen, str(refused), path.read_bytes() == before)
            continue
        except BaseException as error:
            error.add_note(f"{specimen.name}, damage {number} of seed {seed!r}")
            raise
        if by_bytes and specimen.sealed:
            assert is_part(specimen, found, whole), f"{specimen.name}, damage {number} of seed {seed!r}"


def check_refusal(specimen: Specimen, sentence: str, untouched: bool) -> None:
    assert "\n" not in sentence
    assert len(sentence) < 1000
    # what SQLite takes for a data base it may bring in order before it sees more
    assert untouched or specimen.name == "cache", f"{specimen.name}: a file that is refused is left as it is"


def changed_member(name: str, member: bytes, rng: random.Random) -> tuple[str, bytes]:
    if name.endswith(".json"):
        return name, damage.change_value(member.decode(), rng).encode("utf-8", "replace")
    if rng.random() < 0.2:
        return rng.choice(((name + "x", member), ("../../" + name, member), (name, damage.flip(member + b"x", rng))))
    return name, member


ENDS = (0, -1, 1e-300, 1e300, 10**25, -(10**25), 10**400)
JSON = [s for s in SPECIMENS if s.kind == "json"]


def bring_to_ends(specimen: Specimen, folder: Path, every: int) -> None:
    """Numbers of a file are brought to the ends of what numbers are, one at a time: every n-th of these changes."""
    path, changed = folder / f"w{specimen.suffix}", folder / f"changed{specimen.suffix}"
    specimen.write(path)
    whole = json.loads(damage.without_seals(b" ".join(path.read_bytes().split(b"\n"))))
    numbers = [at for at in damage.places(whole) if type(damage.found_at(whole, at)) in (int, float)]
    for at, end in list(product(numbers, ENDS))[::every]:
        changed.write_text(json.dumps(damage.with_value(whole, at, end)))
        try:
            with bounded():
                specimen.read(changed)
        except FileError as refused:
            check_refusal(specimen, str(refused), True)
        except BaseException as error:
            error.add_note(f"{specimen.name}: {list(at)} is {end}")
            raise


@pytest.mark.parametrize("specimen", JSON, ids=lambda s: s.name)
def test_numbers_at_their_ends_give_one_sentence_or_a_value(specimen: Specimen, tmp_path: Path) -> None:
    bring_to_ends(specimen, tmp_path, {"run": 2}.get(specimen.name, 11))


@pytest.mark.slow
@pytest.mark.parametrize("specimen", JSON, ids=lambda s: s.name)
def test_all_numbers_at_their_ends_give_one_sentence_or_a_value(specimen: Specimen, tmp_path: Path) -> None:
    bring_to_ends(specimen, tmp_path, 1)


@pytest.mark.parametrize("specimen", [s for s in SPECIMENS if s.kind == "zip"], ids=lambda s: s.name)
def test_names_that_take_up_the_rest_of_a_zip_file_give_one_sentence(specimen: Specimen, tmp_path: Path) -> None:
    """What zipfile says quotes the name that it found, however long that is."""
    path = tmp_path / f"w{specimen.suffix}"
    specimen.write(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x03\x04")
    data[at + 26 : at + 28] = min(len(data) - at - 30, 0xFFFF).to_bytes(2, "little")  # the length of the first name
    path.write_bytes(data)
    with pytest.raises(FileError) as refused:
        specimen.read(path)
    check_refusal(specimen, str(refused.value), path.read_bytes() == data)


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_damage_gives_one_sentence_or_an_equal_value(specimen: Specimen, tmp_path: Path) -> None:
    path = tmp_path / f"w{specimen.suffix}"
    specimen.write(path)
    hurt(specimen, path.read_bytes(), tmp_path, specimen.name, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: s.name)
def test_much_damage_gives_one_sentence_or_an_equal_value(specimen: Specimen, seed: int, tmp_path: Path) -> None:
    path = tmp_path / f"w{specimen.suffix}"
    specimen.write(path)
    hurt(specimen, path.read_bytes(), tmp_path, f"{seed} {specimen.name}", 400)


@pytest.mark.parametrize("specimen", [s for s in SPECIMENS if s.kind != "bytes"], ids=lambda s: s.name)
def test_a_cut_at_the_end_of_every_line_and_member_is_seen(specimen: Specimen, tmp_path: Path) -> None:
    """Cuts that leave something whole are the ones that a parser does not see."""
    whole = tmp_path / f"w{specimen.suffix}"
    specimen.write(whole)
    data = whole.read_bytes()
    wanted = specimen.read(whole)
    data = whole.read_bytes()
    ends = [n + 1 for n, byte in enumerate(data) if byte in b"}]\n" and n + 1 < len(data)]
    for number, end in enumerate(random.Random(0).sample(ends, min(10, len(ends)))):
        here = tmp_path / str(number)
        here.mkdir()
        path = here / f"cut{specimen.suffix}"
        path.write_bytes(data[:end])
        try:
            with bounded():
                found = specimen.read(path)
        except FileError:
            continue
        assert is_part(specimen, found, wanted), end


BOMBS = """
import gzip, io, json, lzma, resource, sys, zipfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from specimens import SPECIMENS
from tinygpu.files import FileError
folder, most = Path(sys.argv[2]), int(sys.argv[3])
long = b"[" + b"[]," * 30_000_000 + b"[]]"
zipped = io.BytesIO()
with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("bundle.json", b"{" + b" " * 400_000_000)
    archive.writestr("facts.npy", b" " * 400_000_000)
bombs = {
    "nested": b"[" * 5_000_000, "objects": b'{"a":' * 2_000_000, "lists": long[:30_000_000],
    "members": b"{" + b",".join(b'"%d":{}' % n for n in range(2_000_000)) + b"}",
    "gzip": gzip.compress(bytes(300_000_000), 1), "xz": lzma.compress(bytes(300_000_000), preset=0),
    "gzip of lists": gzip.compress(b'{"cache": ' + long, 1), "zip": zipped.getvalue(), "line": b"1" * 40_000_000,
    "array": b"\\x93NUMPY\\x01\\0\\x46\\0{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999,), }".ljust(80),
}
del long, zipped
start = resource.getrusage(resource.RUSAGE_SELF)
resource.setrlimit(resource.RLIMIT_DATA, (most + start.ru_maxrss * 1024,) * 2)
for name, data in bombs.items():
    for specimen in SPECIMENS:
        path = folder / ("bomb" + (specimen.suffix or ".gz" * (name[:4] == "gzip")))
        path.write_bytes(data)
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            specimen.read(path)
            print(name, "is read as", specimen.name)
        except FileError as refused:
            pass
        except BaseException as error:
            print(name, specimen.name, type(error).__name__, str(error)[:200])
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds = after.ru_utime - before.ru_utime
        if seconds > 2:
            print(name, specimen.name, f"{seconds:.1f} s")
        path.unlink()
"""


@pytest.mark.slow
def test_what_grows_is_refused_before_it_has_grown(tmp_path: Path) -> None:
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, folder, str(tmp_path), str(MOST_BYTES)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


WITHOUT = """
import sys
for name in ("msgspec", "sympy", "z3", "ml_dtypes", "rich", "typer"):
    sys.modules[name] = None
from pathlib import Path
import tinygpu.ptx.calibration.__main__, tinygpu.ptx.measuring.child, tinygpu.ptx.measuring.worker
from tinygpu.devices import device
from tinygpu.ptx.calibration import load_calibration
from tinygpu.ptx.measuring.bundle import read_bundle
from tinygpu.ptx.measuring.results import Results
from tinygpu.search.measured import load_results
here = Path(sys.argv[1])
print(len(read_bundle(here / "bundle").entries), len(load_results(here / "results").measurements))
print(load_calibration(here / "profile.json").base, device(here / "profile.json").name)
"""


def test_the_machine_with_a_gpu_reads_its_files_with_numpy_alone(tmp_path: Path) -> None:
    named = {specimen.name: specimen for specimen in SPECIMENS}
    for name, file in (("bundle", "bundle"), ("results", "results"), ("measured profile", "profile.json")):
        named[name].write(tmp_path / file)
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path)], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", "2 3\nH200-SXM H200-SXM-measured\n")


# Modules that open a file for reading, and why they are not among the specimens.
OTHERS = {
    "tinygpu.files": "the room itself",
    "tinygpu.report.page": "its own files",
    "tinygpu.api.pages.__main__": "the page that it has written before",
    "tinygpu.api.pages.source": "the machine's own file, which has been run",
    "tinygpu.api.machines": "runs the user's Python file, which is code",
    "tinygpu.processes.apart": "the answer of its own copy, over a pipe",
    "tinygpu.api.caching": "digests of source files",
    "tinygpu.api.emulate": "PTX text, which the emulator's own tests damage",
    "tinygpu.cli.commands.tuning": "prints what it has just written",
    "tinygpu.program.saved": "its specimen is read by the test",
    "tinygpu.ptx.emulator.forms": "its own files",
    "tinygpu.ptx.cards.__main__": "its own files",
    "tinygpu.ptx.cards.generated": "the page that it has written before",
    "tinygpu.ptx.cards.whole_kernel": "a listing that the page shows; it reads nothing",
    "tinygpu.ptx.calibration.page": "a page of the documents",
    "tinygpu.ptx.measuring.subject": "answers in a temporary folder of the same run",
    "tinygpu.ptx.runtime.driver": "lines of its own child",
    "tinygpu.ptx.assembling.ptxas": "machine code that its own child wrote",
    "tinygpu.ptx.launching.kernel": "messages of its own child",
    "tinygpu.ptx.runtime.calls": "imports the driver's bindings by a name of the command line",
    "tinygpu.ptx.runtime.callable": "imports array libraries by fixed names",
    "tinygpu.ptx.runtime.outputs": "imports array libraries by fixed names",
    "tinygpu.search.parallel_child": "the maker that its own parent sends",
    "tinygpu.processes.command": "the log that its own parent names",
    "tinygpu.processes.messages": "messages of its own processes",
    "tinygpu.processes.serving": "the module that its own parent names",
    "tinygpu.search.worker_time": "also the log of its own child",
}
READS = re.compile(
    r"(?<![.\w])(read_file|read_lines|LineFile|Archive|array_of|spec_from_file_location)\("
    r"|(?<!async_shared)\.(read_text|read_bytes)\(|(?<![.\w])(?<!def )open\("
    r"|\b(json|np|pickle|zipfile|gzip|lzma|sqlite3|importlib)"
    r"\.(load|loads|open|ZipFile|connect|fromfile|memmap|import_module)\("
)
ROOMS = {"tinygpu": "tinygpu", "ptx": "tinygpu.ptx", "search": "tinygpu.search", "machines": "tinygpu.machines"}


def readers() -> set[str]:
    """Modules of all rooms that call something which reads a file, parses what was read, or imports by name."""
    found = set()
    for room, package in ROOMS.items():
        for path in (ROOT / room).rglob("*.py"):
            if READS.search(path.read_text(encoding="utf-8")):
                parts = path.relative_to(ROOT / room).with_suffix("").parts
                found.add(".".join((package, *(p for p in parts if p != "__init__"))))
    return found


@pytest.mark.end_to_end
def test_every_reader_has_a_specimen() -> None:
    covered = {module for specimen in SPECIMENS for module in specimen.modules} | set(OTHERS)
    missing = {m for m in readers() if m not in covered and not m.startswith("tinygpu.files")}
    assert missing == set()

