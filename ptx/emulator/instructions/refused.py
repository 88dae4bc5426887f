"""Instructions of PTX that have no semantics here on purpose, and why."""

from __future__ import annotations

_TEXTURES = "textures and surfaces are not emulated"
_MULTIMEM = "multimem reaches several devices, and one device is emulated"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("tex", "tld4", "txq", "istypep", "suld", "sust", "sured", "suq", "suld2", "sust2"), _TEXTURES
    ),
    "multimem": _MULTIMEM,
}


def why_refused(opcode: str) -> str:
    """Why an opcode has no semantics, "" where there is no more to say than that."""
    return REFUSED.get(opcode, "")
