"""PTX text to tokens."""

from __future__ import annotations

import re
import struct
from typing import Literal, NamedTuple

from tinygpu.ptx.emulator.faults import PtxSyntaxError

TokenKind = Literal["word", "dot", "integer", "float", "string", "punct", "end"]


class Token(NamedTuple):
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
    r"""[ \t\r\f\v]*(?:
    (?P<newline>\n)
  | (?P<dot>\.[\w$]+(?:::[\w$]+)*)
  | (?P<word>[A-Za-z][\w$]*|[_$%][\w$]+|_)
  | (?P<exact32>0[fF][0-9a-fA-F]{8}(?![\w$]))
  | (?P<exact64>0[dD][0-9a-fA-F]{16}(?![\w$]))
  | (?P<float>(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?![\w$]))
  | (?P<integer>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?(?![\w$]))
  | (?P<string>"[^"\n]*")
  | (?P<punct><<|>>|<=|>=|==|!=|&&|\|\||[@{}()\[\]:;,=+\-*/%&|^~!<>?.])
  | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
# Strings are matched so that what looks like a comment inside one is none.
_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)


def _without_comments(text: str, first_line: int) -> str:
    """The text with comments turned into blanks, so that every place stays where it is."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith('"'):
            return found
        if found == "/*":
            line = text.count("\n", 0, match.start()) + first_line
            column = match.start() - text.rfind("\n", 0, match.start())
            raise PtxSyntaxError(line, column, "this comment is never closed with */")
        return re.sub(r"[^\n]", " ", found) if "\n" in found else " " * len(found)

    return _COMMENT.sub(blank, text)


def tokenize(text: str, first_line: int = 1) -> list[Token]:
    """The tokens of a PTX text, comments and white space left out, closed by one token of kind "end"."""
    tokens: list[Token] = []
    content = _without_comments(text, first_line)
    line, before, position = first_line, -1, 0  # before: the place just before the line's first character
    add, match_at, plain = tokens.append, _LEXEME.match, (0, 0)
    made = tuple.__new__  # as Token(...) does, without its frame: texts have a hundred thousand of them
    while (match := match_at(content, position)) is not None:
        kind = match.lastgroup
        if kind == "end":
            add(Token("end", "end of text", line, len(content) - before))
            return tokens
        start, position = match.span(kind)  # type: ignore[arg-type]
        if kind == "newline":
            line, before = line + 1, start
            continue
        lexeme, column = content[start:position], start - before
        if kind in ("word", "dot", "punct", "string"):
            add(made(Token, (kind, lexeme, line, column, plain)))
        elif kind == "integer":
            add(Token("integer", lexeme, line, column, _integer(lexeme, line, column)))
        elif kind == "float":
            pattern = int.from_bytes(struct.pack("<d", float(lexeme)), "little")
            add(Token("float", lexeme, line, column, (64, pattern)))
        else:
            bits = 32 if kind == "exact32" else 64
            add(Token("float", lexeme, line, column, (bits, int(lexeme[2:], 16))))
    while content[position] in " \t\r\f\v":
        position += 1
    raise PtxSyntaxError(line, position - before, f"character {content[position]!r} starts no token of PTX")


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
