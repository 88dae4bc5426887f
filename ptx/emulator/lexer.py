"""PTX text to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tinygpu.ptx.emulator.faults import PtxSyntaxError

TokenKind = Literal["word", "dot", "integer", "float", "string", "punct", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """One lexeme.

    kind    word (identifier or register), dot (".global", ".L1::no_allocate"), integer, float, string, punct, end
    text    as written
    line    from 1
    column  from 1
    bits    for float: (width in bits, bit pattern); for integer: (0 signed / 1 unsigned suffix, value)
    """

    kind: TokenKind
    text: str
    line: int
    column: int
    bits: tuple[int, int] = (0, 0)


# Lexical rules: PTX ISA, "Syntax": identifiers, integer constants (decimal, 0x, 0b, octal, suffix U), floating
# constants as exact bits (0f and 8 hex digits, 0d and 16) or decimal. Alternatives are tried in this order.
_LEXEME = re.compile(
    r"""
    (?P<space>[ \t\r\f\v]+|//[^\n]*)
  | (?P<newline>\n)
  | (?P<comment>/\*)
  | (?P<exact32>0[fF][0-9a-fA-F]{8}(?![\w$]))
  | (?P<exact64>0[dD][0-9a-fA-F]{16}(?![\w$]))
  | (?P<float>(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?![\w$]))
  | (?P<hex>0[xX][0-9a-fA-F]+U?(?![\w$]))
  | (?P<binary>0[bB][01]+U?(?![\w$]))
  | (?P<decimal>[0-9]+U?(?![\w$]))
  | (?P<word>[A-Za-z][\w$]*|[_$%][\w$]+|_)
  | (?P<dot>\.[\w$]+(?:::[\w$]+)*)
  | (?P<string>"[^"\n]*")
  | (?P<punct><<|>>|<=|>=|==|!=|&&|\|\||[@{}()\[\];:,=+\-*/%&|^~!<>?.])
    """,
    re.VERBOSE | re.ASCII,
)


def tokenize(text: str) -> list[Token]:
    """The tokens of a PTX text, comments and white space left out, closed by one token of kind "end"."""
    import struct

    tokens: list[Token] = []
    position, line, line_start = 0, 1, 0
    length = len(text)
    while position < length:
        match = _LEXEME.match(text, position)
        column = position - line_start + 1
        if match is None:
            raise PtxSyntaxError(line, column, f"character {text[position]!r} starts no token of PTX")
        kind = match.lastgroup
        lexeme = match.group()
        position = match.end()
        if kind == "space":
            continue
        if kind == "newline":
            line, line_start = line + 1, position
        elif kind == "comment":
            end = text.find("*/", position)
            if end < 0:
                raise PtxSyntaxError(line, column, "this comment is never closed with */")
            newlines = text.count("\n", position, end)
            if newlines:
                line, line_start = line + newlines, text.rfind("\n", position, end) + 1
            position = end + 2
        elif kind == "exact32":
            tokens.append(Token("float", lexeme, line, column, (32, int(lexeme[2:], 16))))
        elif kind == "exact64":
            tokens.append(Token("float", lexeme, line, column, (64, int(lexeme[2:], 16))))
        elif kind == "float":
            pattern = int.from_bytes(struct.pack("<d", float(lexeme)), "little")
            tokens.append(Token("float", lexeme, line, column, (64, pattern)))
        elif kind in ("hex", "binary", "decimal"):
            tokens.append(Token("integer", lexeme, line, column, _integer(lexeme, line, column)))
        elif kind in ("word", "dot", "string", "punct"):
            tokens.append(Token(kind, lexeme, line, column))  # type: ignore[arg-type]
    tokens.append(Token("end", "end of text", line, length - line_start + 1))
    return tokens


def _integer(lexeme: str, line: int, column: int) -> tuple[int, int]:
    unsigned = lexeme.endswith("U")
    digits = lexeme[:-1] if unsigned else lexeme
    if len(digits) > 80:
        raise PtxSyntaxError(line, column, "integer constants have at most 64 bits")
    try:
        if digits[:2] in ("0x", "0X"):
            value = int(digits, 16)
        elif digits[:2] in ("0b", "0B"):
            value = int(digits, 2)
        elif len(digits) > 1 and digits[0] == "0":
            value = int(digits, 8)
        else:
            value = int(digits)
    except ValueError:
        raise PtxSyntaxError(line, column, f"{lexeme!r} is not an integer constant") from None
    if value >= 1 << 64:
        raise PtxSyntaxError(line, column, f"{lexeme} does not fit into 64 bits")
    return (1 if unsigned else 0, value)
