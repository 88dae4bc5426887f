"""Control flow of a flat list of statements: basic blocks, their order, and definite assignment.

Blocks are numbered so that (1) every successor that is not reached by going back in a loop has a higher rank, and
(2) the blocks of a loop are contiguous. Running, for each warp, the lanes with the lowest rank first then makes lanes
meet again at the immediate post-dominator of the branch that parted them: every block between the two has a lower rank.
Where several branches go back to the head of a loop, that may be the head itself, which has the lowest rank of all:
they go to an empty block behind the rest of the loop first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.syntax import Guard, Instruction, Label, Statement, SymbolOperand

EXIT = -1
# Loops nested deeper than this keep the order of the text, so that no text takes quadratic time.
_MAX_LOOP_DEPTH = 200


@dataclass(slots=True)
class Block:
    """A stretch of instructions that run one after another.

    end      the instruction that ends it (a branch, exit, or barrier), or None when it falls into the next block
    targets  blocks after it: [taken, not taken] for a conditional branch, [next] otherwise; EXIT leaves the kernel
    """

    body: list[Instruction]
    end: Instruction | None
    targets: list[int] = field(default_factory=list)
    rank: int = 0


def is_blocking(instruction: Instruction) -> bool:
    """Whether a warp may have to wait at this instruction for others of its CTA or cluster."""
    if instruction.opcode == "bar":
        return bool(instruction.modifiers) and "warp" not in instruction.modifiers
    return instruction.opcode == "barrier" and "cluster" not in instruction.modifiers


def _stands_alone(instruction: Instruction) -> bool:
    """Blocking instructions, and jumps into a table under a guard."""
    return is_blocking(instruction) or (instruction.opcode == "brx" and instruction.guard is not None)


def _ends_block(instruction: Instruction) -> bool:
    return instruction.opcode in ("bra", "brx", "exit", "ret", "trap", "brkpt") or is_blocking(instruction)


def build_blocks(statements: list[Statement], branch_targets: dict[str, tuple[str, ...]]) -> list[Block]:
    """The blocks of a kernel, entry first, in rank order; unreachable ones are dropped."""
    blocks: list[Block] = [Block([], None)]
    labels: dict[str, int] = {}
    for statement in statements:
        current = blocks[-1]
        if isinstance(statement, Label):
            if current.body or current.end is not None:
                blocks.append(Block([], None))
            labels[statement.key] = len(blocks) - 1
        elif _stands_alone(statement) and (current.body or statement.guard is not None):
            # So that waiting warps resume behind it; its guard becomes a branch.
            if statement.guard is not None:
                current.end = _skip(statement)
                blocks.append(Block([], None))
            else:
                blocks.append(Block([], None))
            blocks[-1].end = _unguarded(statement)
            blocks.append(Block([], None))
        elif _ends_block(statement):
            current.end = statement
            blocks.append(Block([], None))
        else:
            current.body.append(statement)
    last = len(blocks) - 1
    for index, block in enumerate(blocks):
        block.targets = _targets(block, index, last, labels, branch_targets)
    return _in_rank_order(blocks)


def _skip(instruction: Instruction) -> Instruction:
    """The branch around a guarded blocking instruction; its target is filled in as "two blocks on"."""
    guard = instruction.guard
    if guard is None:
        raise ValueError("only guarded instructions are skipped")
    return Instruction(
        "skip", (), (), (), Guard(guard.register, not guard.negated), instruction.line, instruction.column
    )


def _unguarded(instruction: Instruction) -> Instruction:
    return Instruction(
        instruction.opcode, instruction.modifiers, instruction.types, instruction.operands, None,
        instruction.line, instruction.column,
    )  # fmt: skip


def _targets(
    block: Block, index: int, last: int, labels: dict[str, int], branch_targets: dict[str, tuple[str, ...]]
) -> list[int]:
    following = index + 1 if index < last else EXIT
    end = block.end
    if end is None:
        return [following]
    if end.opcode == "skip":
        return [index + 2 if index + 2 <= last else EXIT, following]
    if end.opcode in ("exit", "ret", "trap", "brkpt"):
        return [EXIT] if end.guard is None else [EXIT, following]
    if end.opcode == "bra":
        target = labels[_symbol(end, 0)]
        return [target] if end.guard is None else [target, following]
    if end.opcode == "brx":
        names = branch_targets.get(_symbol(end, 1))
        if names is None:
            raise PtxSyntaxError(end.line, end.column, "brx.idx names no .branchtargets list")
        missing = [name for name in names if name not in labels]
        if missing:
            raise PtxSyntaxError(end.line, end.column, f"the branch target {missing[0]} is no label here")
        return [labels[name] for name in names]
    return [following]


def _symbol(instruction: Instruction, position: int) -> str:
    if len(instruction.operands) <= position or not isinstance(instruction.operands[position], SymbolOperand):
        raise PtxSyntaxError(instruction.line, instruction.column, f"`{instruction.name}` needs a label here")
    operand = instruction.operands[position]
    return operand.name if isinstance(operand, SymbolOperand) else ""


def _in_rank_order(blocks: list[Block]) -> list[Block]:
    edges = [[t for t in dict.fromkeys(block.targets) if t != EXIT] for block in blocks]
    order, joined = _loop_contiguous_order(edges, _reachable(edges, 0), 0)
    for (source, head), latch in joined.items():
        blocks[source].targets = [latch if t == head else t for t in blocks[source].targets]
    blocks = [*blocks, *(Block([], None, edges[latch]) for latch in range(len(blocks), len(edges)))]
    rank = {index: position for position, index in enumerate(order)}
    for index in order:
        blocks[index].rank = rank[index]
        blocks[index].targets = [t if t == EXIT else rank[t] for t in blocks[index].targets]
    return [blocks[index] for index in order]


def _reachable(edges: list[list[int]], entry: int) -> set[int]:
    seen, stack = {entry}, [entry]
    while stack:
        for target in edges[stack.pop()]:
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def _loop_contiguous_order(
    edges: list[list[int]], nodes: set[int], entry: int
) -> tuple[list[int], dict[tuple[int, int], int]]:
    """A topological order of the components of `nodes`; each loop is opened at its header and ordered within.

    Also (source, header) -> the node that was put between the two, of headers to which several edges of their loops go
    back; `edges` has these nodes behind all others.
    """
    joined: dict[tuple[int, int], int] = {}
    before: dict[int, list[int]] = {}
    for node in nodes:
        for target in edges[node]:
            before.setdefault(target, []).append(node)
    result: list[int] = []
    # Work list instead of recursion: (nodes, entry, depth of loops around them). A header that is taken out of its loop
    # takes the edges that go back to it along.
    pending: list[tuple[set[int], int, int] | int] = [(nodes, entry, 0)]
    while pending:
        item = pending.pop()
        if isinstance(item, int):
            result.append(item)
            continue
        inside, first, depth = item
        expanded: list[tuple[set[int], int, int] | int] = []
        done: set[int] = set()
        for component in components(edges, inside, first):
            if len(component) == 1:
                expanded.append(component[0])
            elif depth == _MAX_LOOP_DEPTH:
                # The order decides where parted lanes meet again, not what they compute.
                expanded.extend(sorted(component))
            else:
                members = set(component)
                headers = [first] if first in members else [
                    node for node in component if any(source in done for source in before.get(node, ()))
                ]  # fmt: skip
                header = min(headers) if headers else min(component)
                expanded.append(header)
                rest = members - {header}
                back = [node for node in component if header in edges[node]]
                if len(back) > 1:
                    rest.add(latch := len(edges))
                    edges.append([header])
                    for node in back:
                        edges[node] = [latch if target == header else target for target in edges[node]]
                        joined[node, header] = latch
                starts = [t for t in edges[header] if t in rest] or [min(rest)]
                expanded.append((rest, starts[0], depth + 1))
            done.update(component)
        pending.extend(reversed(expanded))
    return result, joined


def components(edges: list[list[int]], nodes: set[int], entry: int) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []

    def enter(node: int) -> tuple[int, Iterator[int]]:
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        return node, iter([t for t in edges[node] if t in nodes])

    for root in [entry, *sorted(nodes)]:
        if root in index or root not in nodes:
            continue
        work = [enter(root)]
        while work:
            node, successors = work[-1]
            for target in successors:
                if target not in index:
                    work.append(enter(target))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if low[node] == index[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    found.append(component)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found[::-1]
