"""Ctrl-C in a search: it waits for the books to be in order, and for nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interruption:
    """While this is entered, Ctrl-C raises KeyboardInterrupt as ever, but never inside a `held` block: there it is
    raised at the block's end.

    Where Python does not handle Ctrl-C itself (another thread, a handler of the caller's own) nothing is changed.
    """

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._installed = False

    def __enter__(self) -> Interruption:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block that Ctrl-C does not cut in two."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self._pending = True
            return
        raise KeyboardInterrupt
