"""A kernel that is read and compiled once, for launches one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.instructions.binder import Binder
from tinygpu.ptx.emulator.run.program import Program, compile_program
from tinygpu.ptx.emulator.source.inlining import FlatCode, flatten
from tinygpu.ptx.emulator.source.linking import read_modules
from tinygpu.ptx.emulator.source.syntax import Function, Module

_read_modules = lru_cache(maxsize=32)(read_modules)


@dataclass(slots=True, eq=False)
class PreparedKernel:
    """One kernel of a PTX module, made by `prepare`: what its launches have in common is worked out by the first.

    It belongs to one thread at a time: the counts of its program are those of the last launch.
    """

    module: Module
    function: Function
    _code: FlatCode | None = None
    _binder: Binder | None = None
    _program: Program | None = None

    @property
    def code(self) -> FlatCode:
        """The kernel's statements, with the functions that it calls copied into them."""
        if self._code is None:
            self._code = flatten(self.function, self.module)
        return self._code

    def program(self, binder: Binder) -> Program:
        """The program for a launch whose variables lie where `binder` says, with all counts at zero.

        What differs between launches, its instructions look up when they run; only where variables lie is compiled in.
        """
        if self._program is None or self._binder is None or not self._binder.agrees(binder):
            self._program, self._binder = compile_program(self.function.name, self.code, binder), binder
        self._program.forget_counts()
        return self._program


def prepare(ptx: str | Sequence[str], entry: str | None = None) -> PreparedKernel:
    """One kernel of a PTX module, or of several, to be launched by `emulate` again and again.

    ptx    PTX text, of any compiler; several texts are linked by the names that they share
    entry  name of the kernel; None takes the only one

    Raises PtxSyntaxError, UnsupportedInstruction and LaunchError.
    """
    module = _read_modules((ptx,) if isinstance(ptx, str) else tuple(ptx))
    return PreparedKernel(module, find_entry(module, entry))


def find_entry(module: Module, name: str | None) -> Function:
    """The entry called `name`, or the only one."""
    entries = [f for f in module.functions if f.is_entry and f.has_body]
    names = ", ".join(f.name for f in entries) or "none"
    if name is None:
        if len(entries) != 1:
            raise LaunchError(f"this PTX has {len(entries)} entries ({names}): say which with entry=")
        return entries[0]
    for function in entries:
        if function.name == name:
            return function
    raise LaunchError(f"this PTX has no entry {name!r}; it has {names}")
