"""Which targets have an instruction, by its name, as assemblers (nvJitLink 13.5) enforce it.

A target is sm_, a number and perhaps f or a. What exists since a number exists on all later ones. A feature of a family
exists on its f and a targets: 100f on sm_100f, sm_100a, sm_103f and sm_103a. One of an architecture exists on a alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.syntax import Instruction, IntegerOperand, Module, SpecialOperand

_TARGET = re.compile(r"sm_(\d+)([af]?)")
# The first rule that a name matches says what it needs: any one of these.
_RULES: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), tuple(needs.split()))
    for pattern, needs in (
        (r"wgmma\.", "90a"),
        (r"tcgen05\.ld\.red", "103f 110f"),
        (r"tcgen05\.shift", "100a 103a 110a"),
        (r"tcgen05\.mma.*kind::i8", "100a 110a"),
        (r"tcgen05\.mma.*scale_vec", "100a 103a 110a"),
        (r"tcgen05\.", "100f 110f"),
        (r"tensormap\.replace.*swizzle_atomicity", "100f 110f 120f"),
        (r"tensormap\.replace|setmaxnreg", "90a 100f 110f 120f"),
        (r"mma\.sp.*kind::mxf4", "120a 121a"),
        (r"mma\.(?!sp).*kind::f8f6f4\.m16n8k32\.row\.col\.f32\.(e4m3|e5m2)\.(e4m3|e5m2)\.", "100f 110f 120f"),
        (r"mma\..*kind::", "120f"),
        (r"mma\..*(e4m3|e5m2)", "89"),
        (r"mma\.sync\.aligned\.m16n8k(4|8|16)\..*f64", "90"),
        (r"(ldmatrix|stmatrix)\..*b8", "100f 110f 120f"),
        (r"stmatrix", "90"),
        (r"cvt\.rs", "100a 103a"),
        (r"cvt\..*(e2m1|e2m3|e3m2|ue8m0)|cvt\..*(e4m3|e5m2)x2\.bf16x2|cvt\..*bf16x2\.(e4m3|e5m2)x2", "100f 110f 120f"),
        (r"cvt\..*(e4m3|e5m2)", "89"),
        (r"cvt\.(rn|rz)\b.*satfinite\.tf32", "100"),
        (r"cvt\.(rn|rz)\b.*tf32", "90"),
        # Two types name a conversion: of bf16, to and from f32 is older than the rest.
        (r"cvt\.f32\.bf16$|cvt\..*bf16(x2)?\.f32$", ""),
        (r"cvt\..*bf16", "90"),
        (r"redux\..*f32", "100f"),
        (r"clusterlaunchcontrol.*multicast", "100f 110f 120f"),
        (r"clusterlaunchcontrol", "100"),
        (r"cp\.async\.bulk\..*(cta_group|im2col::w|scatter4)|cp\.async\.bulk\.prefetch.*gather4", "100f 110f"),
        (r"cp\.async\.bulk\..*shared::cluster.*gather4", "100f 110f"),
        (r"cp\.async\.bulk\..*(gather4|cp_mask)|st\.bulk", "100"),
        (r"cp\.(reduce\.)?async\.bulk", "90"),
        (r"(ld|st)\..*(v8\.[busf]32|v4\.[busf]64)", "100"),
        (r".*f32x2|(add|sub|fma)\..*f32\.b?f16$|(min|max)\.(?!.*xorsign).*abs", "100"),
        (r"(min|max)\..*xorsign", "86"),
        (r"(add|min|max)\.([us]16x2)|(min|max)\.relu\.(s32|s16x2)|fma\..*oob", "90"),
        (r"(add|sub|mul|tanh|ex2|set|setp)\..*bf16", "90"),
        (r"(st|red)\.async\.mmio", "100"),
        (r"(st|red)\.async|multimem|mapa|getctarank|barrier\.cluster|elect|griddepcontrol", "90"),
        (r"fence\.(acquire|release|mbarrier_init|proxy\.async|proxy\.tensormap)|fence\..*cluster", "90"),
        (r"prefetch\..*tensormap|tensormap\.cp_fenceproxy", "90"),
        (r"mbarrier\..*(try_wait|expect_tx|complete_tx|relaxed|release|cluster)", "90"),
        (r"(atom|red)(?=.*(\.b128|noftz\.bf16|bf16.*noftz|\.v[248]\b|\.cluster))", "90"),
        (r"(ld|st|cvta|isspacep)\..*cluster", "90"),
    )
)  # fmt: skip
_SPECIALS = re.compile(r"%(aggr_smem_size|n?clusterid|cluster_n?cta|is_explicit_cluster)")


@lru_cache(maxsize=1024)
def has(target: str, need: str) -> bool:
    """Whether a target has what exists since "90", in the family "100f", or on the architecture "90a".

    >>> [has(target, "100f") for target in ("sm_100", "sm_100f", "sm_103a", "sm_110a")]
    [False, True, True, False]
    """
    match, wanted = _TARGET.fullmatch(target), re.fullmatch(r"(\d+)([af]?)", need)
    if match is None or wanted is None:
        return True
    # sm_101 was renamed: it is sm_110.
    number, floor = (110 if int(found[1]) == 101 else int(found[1]) for found in (match, wanted))
    if wanted[2] == "a":
        return number == floor and match[2] == "a"
    if wanted[2] == "f":
        return number // 10 == floor // 10 and number >= floor and match[2] != ""
    return number >= floor


def needs(i: Instruction) -> tuple[str, ...]:
    """What a target must have for this instruction, any one; () where every target that runs here has it."""
    return _by_operands(i) or _by_name(i.name)


@lru_cache(maxsize=4096)  # kernels repeat a few names thousands of times
def _by_name(name: str) -> tuple[str, ...]:
    return next((needed for pattern, needed in _RULES if pattern.match(name)), ())


def _by_operands(i: Instruction) -> tuple[str, ...]:
    """Forms that only their operands tell from older ones."""
    if i.opcode == "tcgen05" and "mma" in i.modifiers and "ws" not in i.modifiers and len(i.operands) > 5:
        # The last one scales the accumulator.
        return ("100f",) if isinstance(i.operands[-1], IntegerOperand) else ()
    if i.opcode in ("min", "max") and len(i.operands) == 4:
        return ("100",)
    if i.opcode == "mbarrier" and "arrive" in i.modifiers and "noComplete" not in i.modifiers:
        counted = len(i.operands) == 3
        return ("90",) if counted else ()
    if any(isinstance(o, SpecialOperand) and _SPECIALS.match(o.name) for o in i.operands):
        return ("90",)
    return ()


def check_targets(module: Module) -> None:
    """Refuse instructions that the module's target does not have, as assemblers do."""
    for function in module.functions:
        _check(module, (s for s in function.body if isinstance(s, Instruction)))


def _check(module: Module, instructions: Iterable[Instruction]) -> None:
    for i in instructions:
        needed = needs(i)
        if needed and not any(has(module.target, need) for need in needed):
            *most, last = (_named(need) for need in needed)
            said = f"{', '.join(most)} or {last}" if most else last
            raise PtxSyntaxError(i.line, i.column, f"`{i.name}` needs {said}, but .target is {module.target}")


def _named(need: str) -> str:
    return f"sm_{need}/a" if need[-1] == "f" else f"sm_{need}" if need[-1] == "a" else f"sm_{need} or later"
