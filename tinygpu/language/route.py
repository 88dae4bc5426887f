"""A route: one hop of data between two memories that have no single instruction between them."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.language.instruction import Transfer


@dataclass(frozen=True, eq=False)
class Route:
    """A load to registers and a store from them, used like one instruction: `Route(LdGlobal(v), StShared(v))`."""

    load: Transfer
    store: Transfer

    @property
    def hops(self) -> tuple[Transfer, Transfer]:
        return (self.load, self.store)

    def __str__(self) -> str:
        return f"{self.load}+{self.store}"
