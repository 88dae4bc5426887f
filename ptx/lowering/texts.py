"""What instructions print: their own methods, which are their author's, give the text of PTX statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygpu.users_code import answer


def written(method: Callable[..., str], *given: Any) -> str:
    """The text that a method of an instruction gives; raises UsersCodeError where one of the user's own gives none."""
    return answer(method, *given, wanted="the text of a PTX statement", fits=lambda found: isinstance(found, str))


__all__ = ["written"]
