"""What bulk transfers ask: of boxes that tensor maps describe, of the parts that CTAs bring, and of single rows."""

from __future__ import annotations

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, all_of, expr
from tinygpu.language.instruction.base import Instruction
from tinygpu.language.tile import Tile

# cuTensorMapEncodeTiled: axes of a tensor; elements of a box along one axis.
MOST_AXES = 5
MOST_BOX = 256
# CUDA programming guide, tensor copies: alignment of a box in shared memory.
BOX_ALIGN_BYTES = 128
# Rows that are moved one by one: a statement each.
MOST_ROWS = 256


def has_axes(rank: int) -> bool:
    """Whether a tensor map describes tensors of this rank."""
    return 1 <= rank <= MOST_AXES


def box_rules(instruction: Instruction, align_bytes: int, source: Tile, target: Tile) -> tuple[Constraint, ...]:
    """Boxes of a window of a tensor, moved to or from a buffer."""
    window, memory_side = (source, target) if source.tensor is not None else (target, source)
    tensor, buffer = window.tensor, memory_side.buffer
    if tensor is None or buffer is None:
        raise ValueError("a tensor map describes a window of a tensor in GMEM, moved to or from a buffer")
    name = tensor.name
    if buffer.span is None:
        raise ValueError(f"{buffer.name} is moved by TMA: say in which spans its rows lie, with swizzle=")
    if window.contiguous != buffer.contiguous:
        raise ValueError(
            f"{buffer.name} has its rows along axis {buffer.contiguous}, and {name} is contiguous along axis "
            f"{window.contiguous}: TMA does not transpose"
        )
    pitch_bytes = tensor.ld * tensor.dtype.bits // 8
    aligned = [tensor.align % align_bytes == 0, *([pitch_bytes % align_bytes == 0] if tensor.rank > 1 else [])]
    rows = [e for axis, e in enumerate(window.shape) if axis != buffer.contiguous]
    return (
        instruction.rule(
            f"axes of {name}",
            has_axes(tensor.rank),
            f"a tensor map describes 1 to {MOST_AXES} axes (here {tensor.rank})",
            "assembler",
        ),
        instruction.rule(
            f"strides of {name}",
            all_of(aligned),
            f"the pointer and the rows of {name} are multiples of {align_bytes} bytes",
            "launch",
        ),
        instruction.rule(
            f"box of {name}",
            all_of([e <= MOST_BOX for e in rows]),
            f"a box of {name} has at most {MOST_BOX} rows",
            "launch",
        ),
    )


def part_rules(instruction: Instruction, source: Tile, target: Tile, ctas: Expr) -> tuple[Constraint, ...]:
    """Each CTA brings as many rows as the others, to a place where a box may begin.

    The swizzle follows the address, not the box: a part lands as if the whole tile had been brought at once.
    """
    buffer = target.buffer
    if buffer is None or buffer.span is None:
        raise ValueError(f"{target.name} is moved by TMA: say in which spans its rows lie, with swizzle=")
    rows = target.shape[1 - (target.contiguous or 0)]
    rule = instruction.rule(
        f"parts of {source.name}",
        all_of([rows % ctas == 0, rows // ctas * buffer.span % BOX_ALIGN_BYTES == 0]),
        f"each CTA of the cluster brings the same number of rows of {source.name}, "
        f"a multiple of {BOX_ALIGN_BYTES} bytes",
        "emulator",
    )
    return (rule,)


def row_rules(instruction: Instruction, align_bytes: int, source: Tile, target: Tile) -> tuple[Constraint, ...]:
    """Whole rows of a window, one by one."""
    window, side = (source, target) if source.tensor is not None else (target, source)
    tensor, buffer, axis = window.tensor, side.buffer, window.contiguous
    if tensor is None or buffer is None or axis is None:
        raise ValueError(f"{instruction.label} moves rows between a tensor in GMEM and a buffer in SMEM")
    if axis != buffer.contiguous:
        other = f"{buffer.name} has rows along another axis than {tensor.name}"
        raise ValueError(f"{other}: {instruction.label} moves rows")
    if buffer.span is not None or buffer.layout:
        raise ValueError(f"{instruction.label} leaves rows as they are: {buffer.name} has neither swizzle= nor layout=")
    if not all(o.same(0) for o in side.offset) or not buffer.shape[0].same(side.shape[0]):
        raise ValueError(f"{instruction.label} moves to or from all of {buffer.name}, not a window of it")
    row_bytes = window.shape[axis] * tensor.dtype.bits // 8
    pitches = [buffer.pitch_bytes, *([tensor.ld * tensor.dtype.bits // 8] if tensor.rank > 1 else [])]
    aligned = [of % align_bytes == 0 for of in (tensor.align, row_bytes, *pitches)]
    rows = expr(1)
    for along, extent in enumerate(window.shape):
        rows = rows * (1 if along == axis else extent)
    return (
        instruction.rule(
            f"rows of {tensor.name}",
            all_of(aligned),
            f"the pointer and the rows of {tensor.name}, and what is moved of each, are multiples of "
            f"{align_bytes} bytes",
        ),
        instruction.rule(
            f"number of rows of {tensor.name}",
            rows <= MOST_ROWS,
            f"a thread issues the moves of {MOST_ROWS} rows at most, one after another",
            "model",
        ),
    )
