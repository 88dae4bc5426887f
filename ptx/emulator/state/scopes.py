"""Scopes of fences and strong accesses: the threads among whom they order (PTX ISA, "Scope")."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction


class Scope(IntEnum):
    """From the narrowest to the widest; .sys is as wide as a launch here."""

    CTA = 0
    CLUSTER = 1
    LAUNCH = 2

    def group(self, cta: int, cluster_size: int) -> int:
        """The number, among the groups of threads of this scope, of the one that a CTA (by number) belongs to."""
        return (cta, cta // cluster_size, 0)[self]


def scope_of(instruction: Instruction, cluster_size: int) -> Scope:
    """The scope of a fence, a strong access or an atomic."""
    if instruction.has("cta"):
        return Scope.CTA
    if instruction.has("cluster"):
        return Scope.CTA if cluster_size == 1 else Scope.CLUSTER
    return Scope.LAUNCH
