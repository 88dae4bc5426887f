"""Times problems of a kit beside PyTorch and Triton: python -m gpu_call.beside JOBS OUT; one JSON line per problem.

A process that one kernel brings down; whoever calls it starts it again without that kernel (see `side_by_side`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gpu_call.ours import OurKernel, bytes_moved, described, layouts
from gpu_call.problems_beside import SCALARS, function_of, judge, operands, poison
from gpu_call.records import Lines
from gpu_call.torch_stage import TorchStage
from gpu_call.turns import Contender, ContenderFailed, Turns, best_of, compared, sets_for, take_turns
from tinygpu.ptx.measuring.bundle import Bundle, Entry, read_bundle
from tinygpu.ptx.measuring.clocks import Clocks
from tinygpu.ptx.measuring.statistics import LEAST_NOISE, noise_of, ratio
from tinygpu.ptx.runtime.calls import load_driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.errors import LaunchRefused, OutOfDeviceMemory, WrongArchitecture

OURS, TORCH, TRITON, COPY = "tinyGPU", "PyTorch", "Triton", "copy"
DOWN = "it brought its process down, or made it useless"
LATE = "it was not tried: the time of this problem was up"
_REFUSED = (LaunchRefused, WrongArchitecture, OutOfDeviceMemory)


@dataclass(frozen=True, slots=True)
class Request:
    """One problem.

    role     "matmuls" or "streams"
    skip     kernels that brought an earlier process down, with how it ended
    seconds  after which no further kernel of the problem is tried, once one is right
    """

    role: str
    name: str
    bundle: Path
    machine: str
    facts: Mapping[str, Any]
    skip: Mapping[str, str]
    seconds: float


class Spoilt(Exception):
    """A kernel that was wrong and changed what it must not touch: this process judges nothing any more."""


def usable() -> bool:
    """Whether the GPU still does anything in this process: a kernel's fault is the answer to whatever comes next."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


class Table:
    """Rows of the table, one problem at a time."""

    def __init__(self, context: Context, say: Callable[[Mapping[str, Any]], None], turns: Turns, seed: int) -> None:
        self.context = context
        self.say = say
        self.turns = turns
        self.seed = seed
        self.noise: float | None = None
        self.clocks = Clocks(context.limits.bus)

    def row(self, request: Request) -> dict[str, Any]:
        """All contenders of one problem, verified and timed in turns."""
        begun = time.monotonic()
        until = begun + request.seconds
        bundle = read_bundle(request.bundle)
        launch = bundle.entries[0].launch
        function = function_of(request.machine)
        size = bytes_moved(bundle.entries[0])
        copies = request.role == "streams"
        count = sets_for(size * (2 if copies else 1), self.context.limits.l2_bytes, self.context.free_bytes())
        stage = TorchStage(count)
        generator = torch.Generator(device="cuda").manual_seed(self.seed)
        sets = [operands(launch, generator) for _ in range(count)]
        right = function.right(sets[0])
        terms = function.terms(bundle.questions[0].problem["dims"])
        tried: dict[str, Any] = {"failed": {k: f"{DOWN}: {how}" for k, how in request.skip.items()}}

        def error_of(once: Callable[[int], None]) -> tuple[bool, float]:
            poison(launch, sets[0])
            stage.run(once)
            return judge(launch, sets[0], function, right, terms)

        def is_right(what: str, once: Callable[[int], None]) -> bool:
            good, worst = error_of(once)
            if not good:
                tried["failed"][what] = f"its result is wrong, by {worst:.3g} times what rounding explains"
            return good

        contenders: list[Contender] = []

        def torch_once(number: int) -> None:
            function.write(sets[number])

        own = error_of(torch_once)
        contenders.append(Contender(TORCH, torch_once, f"{function.kernels} kernel{'s' * (function.kernels > 1)}"))
        if copies:
            contenders.append(self._copy(size, count))
        else:
            triton = self._triton(request, stage, sets, is_right, tried, until)
            if triton is not None:
                contenders.append(triton)

        def intact() -> bool:
            return error_of(torch_once) == own

        ours, kernels = self._ours(stage, bundle, request, sets, is_right, intact, tried, until)
        try:
            if ours is not None:
                contenders.append(ours[0])
            if self.noise is None:
                self.noise = self._learn_noise(stage, contenders[0])
            before = self.clocks.read()
            # who took part under which name
            names = {OURS: ours[1].name} if ours is not None else {}
            names |= {c.name: f"Triton, {c.what}" for c in contenders if c.name == TRITON}
            with self._blaming(request, names):
                times = take_turns(stage, contenders, self.turns, self.seed)
            after = self.clocks.read()
        finally:
            for kernel in kernels:
                kernel.close()
        names = [c.name for c in contenders]
        return {
            "role": request.role, "case": request.name, "machine": request.machine, "facts": dict(request.facts),
            "problem": dict(bundle.questions[0].problem), "bytes": size, "terms": terms, "sets": count,
            "noise": self.noise, "torch_right": own[0], "torch_error": own[1],
            "contenders": {c.name: {**times[c.name].to_json(), "what": c.what} for c in contenders},
            "ratios": {o: compared(times, OURS, o, self.noise) for o in names if o != OURS} if OURS in names else {},
            "ours": None if ours is None else described(ours[1]), "tried": tried,
            "clocks": {"before": before, "after": after}, "seconds": round(time.monotonic() - begun, 2),
        }  # fmt: skip

    def _learn_noise(self, stage: TorchStage, contender: Contender) -> float:
        """One kernel under two names: how far they differ is noise."""
        twin = Contender("the same", contender.launch)
        times = take_turns(stage, [contender, twin], self.turns, self.seed)
        return max(LEAST_NOISE, noise_of(ratio(times[contender.name].cold, times["the same"].cold)))

    def _copy(self, size: int, count: int) -> Contender:
        """A copy from the device to itself that reads and writes as many bytes in all."""
        pairs = [
            tuple(torch.full((max(size // 2, 1),), n, device="cuda", dtype=torch.uint8) for n in range(2))
            for _ in range(count)
        ]
        return Contender(COPY, lambda number: pairs[number][1].copy_(pairs[number][0]), "device to device")

    @contextmanager
    def _blaming(self, request: Request, names: Mapping[str, str]) -> Iterator[None]:
        """A kernel that fails while it is timed is the last one that was begun, as if it had failed before."""
        try:
            yield
        except ContenderFailed as failed:
            self.say({"begin": request.name, "kernel": names.get(failed.name, "")})
            raise

    def _triton(
        self, request: Request, stage: TorchStage, sets: Sequence[Mapping[str, Any]], is_right: Callable[..., bool],
        tried: dict[str, Any], until: float,
    ) -> Contender | None:  # fmt: skip
        """The fastest of the configurations that are right."""
        try:
            from gpu_call.triton_matmul import configurations, launcher
        except ImportError as missing:
            tried["failed"][TRITON] = f"there is no Triton: {missing}"
            return None
        good = []
        sms = self.context.limits.sms
        for config in configurations(sets[0]["a"].shape[0]):
            what = f"Triton, {config}"
            if what in request.skip:
                continue
            if good and time.monotonic() > until:
                tried["failed"][what] = LATE
                continue
            self.say({"begin": request.name, "kernel": what})
            try:
                launches = [launcher(config, s["a"], s["b"], s["c"], sms) for s in sets]
                once = _numbered(launches)
                if is_right(what, once):
                    good.append(Contender(what, once, str(config)))
            except Exception as refused:  # whatever a compiler raises costs that configuration alone
                if not usable():
                    raise
                tried["failed"][what] = f"{type(refused).__name__}: {first_line(refused)}"
        self.say({"begin": request.name, "kernel": ""})
        tried["triton"] = len(good)
        if not good:
            return None
        with self._blaming(request, {c.name: c.name for c in good}):
            best, _ = best_of(stage, good, self.seed)
        return Contender(TRITON, best.launch, best.what)

    def _ours(
        self, stage: TorchStage, bundle: Bundle, request: Request, sets: Sequence[Mapping[str, Any]],
        is_right: Callable[..., bool], intact: Callable[[], bool], tried: dict[str, Any], until: float,
    ) -> tuple[tuple[Contender, Entry] | None, list[OurKernel]]:  # fmt: skip
        """The fastest of the candidates that are right, and everything that was loaded.

        intact  whether the operands still are what they were
        """
        addresses = [{name: tensor.data_ptr() for name, tensor in s.items()} for s in sets]
        scalars = {name: SCALARS[name] for name, _ in bundle.questions[0].scalars}
        loaded: list[OurKernel] = []
        good: list[tuple[Contender, Entry]] = []
        for entry in bundle.entries:
            name = entry.name
            if name in request.skip:
                continue
            if good and time.monotonic() > until:
                tried["failed"][name] = LATE
                continue
            if layouts(entry) != layouts(bundle.entries[0]):
                tried["failed"][name] = "it wants its operands in another memory layout than the first kernel"
                continue
            self.say({"begin": request.name, "kernel": name})
            try:
                kernel = OurKernel(self.context, bundle, entry, addresses, scalars, stage.handle)
            except _REFUSED as refused:
                tried["failed"][name] = str(refused)
                continue
            loaded.append(kernel)
            # twice: a launch may rely on what the one before it left behind
            if is_right(name, kernel.launch) and is_right(name, kernel.launch):
                good.append((Contender(name, kernel.launch, str(kernel)), entry))
            elif not intact():
                raise Spoilt(tried["failed"][name] + "; and it wrote over other memory")
        self.say({"begin": request.name, "kernel": ""})
        tried["ours"] = len(good)
        if not good:
            return None, loaded
        with self._blaming(request, {c.name: c.name for c, _ in good}):
            best, medians = best_of(stage, [c for c, _ in good], self.seed)
        tried["medians"] = medians
        entry = next(e for c, e in good if c is best)
        return (Contender(OURS, best.launch, best.what), entry), loaded


def _numbered(launches: Sequence[Callable[[], None]]) -> Callable[[int], None]:
    def once(number: int) -> None:
        launches[number]()

    return once


def first_line(error: BaseException) -> str:
    """What an error says, as far as it fits into a table."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def main(words: Sequence[str]) -> int:
    """words: a file of requests as JSON, and the file for the lines."""
    asked = json.loads(Path(words[0]).read_text())
    lines = Lines(Path(words[1]))
    torch.zeros(1, device="cuda")  # the primary context, with what PyTorch wants of it
    context = open_context(load_driver(asked["driver"]))
    table = Table(context, lines.write, Turns(**asked["turns"]), asked["seed"])
    table.noise = asked["noise"]
    lines.write({
        "gpu": context.limits.name, "l2_bytes": context.limits.l2_bytes, "torch": torch.__version__,
        "cuda_of_torch": torch.version.cuda,
        "bf16_sums_in_bf16": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    })  # fmt: skip
    for item in asked["requests"]:
        request = Request(
            item["role"], item["name"], Path(item["bundle"]), item["machine"], item["facts"], item["skip"],
            item["seconds"],
        )  # fmt: skip
        lines.write({"begin": request.name, "kernel": ""})
        try:
            lines.write({"row": table.row(request)})
        except (Spoilt, ContenderFailed) as error:
            # the last line that was begun says by which kernel this process judges nothing any more
            lines.write({"lost": request.name, "sentence": first_line(error)})
            return 1
        except RuntimeError as error:  # the driver's, and PyTorch's for whatever befalls a kernel
            if not usable():
                lines.write({"lost": request.name, "sentence": first_line(error)})
                return 1
            lines.write({"failed": request.name, "sentence": first_line(error)})
        torch.cuda.empty_cache()
    lines.write({"end": True})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
