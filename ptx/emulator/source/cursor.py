"""A place in a list of tokens: looking ahead, expecting, and constant expressions."""

from __future__ import annotations

from tinygpu.ptx.emulator.faults import PtxSyntaxError
from tinygpu.ptx.emulator.source.lexer import Token, tokenize

MAX_DEPTH = 64
# Binary operators of constant expressions, loosest first (PTX ISA, "Constant Expressions").
_OPERATORS: tuple[tuple[str, ...], ...] = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
_EVERY_OPERATOR = frozenset(operator for operators in _OPERATORS for operator in operators)


class Cursor:
    """The tokens of a text and the place that parsing has reached."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self._tokens = tokenize(text, first_line)
        self._at = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _ended(self) -> bool:
        return self._tokens[self._at].kind == "end"

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _fail(self, sentence: str, token: Token | None = None) -> PtxSyntaxError:
        """A complaint about a token, by default the next one.

        What is expected and not found is lacking on the line where it should stand, not where the text goes on.
        """
        if token is None:
            token, last = self._token, self._tokens[max(self._at - 1, 0)]
            lacking = sentence.startswith("expected ") and last.line < token.line
            if lacking and token.kind != "end":
                sentence += f" on line {token.line}"
            if lacking or token.kind == "end":
                token = last
        return PtxSyntaxError(token.line, token.column, sentence)

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._at += 1
        return token

    def _is(self, text: str) -> bool:
        token = self._tokens[self._at]
        return token.text == text and token.kind in ("punct", "dot", "word")

    def _accept(self, text: str) -> bool:
        token = self._tokens[self._at]
        if token.text == text and token.kind in ("punct", "dot", "word"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str, after: str) -> Token:
        if not self._is(text):
            found = "the end of the text" if self._ended else f"`{self._token.text}`"
            raise self._fail(f"expected `{text}` {after}, found {found}")
        return self._next()

    def _word(self, what: str) -> Token:
        if self._token.kind != "word":
            raise self._fail(f"expected {what}, found `{self._token.text}`")
        return self._next()

    # ---- constant expressions -----------------------------------------------------------------------------------

    def _constant(self, level: int = 0, depth: int = 0) -> int:
        """The value of a constant integer expression."""
        if depth > MAX_DEPTH:
            raise self._fail("this constant expression is nested too deeply")
        if self._token.kind == "integer" and self._peek().text not in _EVERY_OPERATOR:
            return self._constant_atom(depth)  # as most are
        if level == len(_OPERATORS):
            return self._constant_atom(depth)
        value = self._constant(level + 1, depth)
        while self._token.kind == "punct" and self._token.text in _OPERATORS[level]:
            operator = self._next()
            right = self._constant(level + 1, depth)
            value = self._apply(operator, value, right)
            if not -(1 << 64) < value < 1 << 64:
                value &= (1 << 64) - 1
        return value

    def _apply(self, operator: Token, left: int, right: int) -> int:
        text = operator.text
        if text in ("/", "%"):
            if right == 0:
                raise self._fail("division by zero in a constant expression", operator)
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if text == "/" else left - quotient * right
        if text in ("<<", ">>"):
            if not 0 <= right < 64:
                raise self._fail(f"a shift by {right} in a constant expression", operator)
            return left << right if text == "<<" else left >> right
        results = {"|": left | right, "^": left ^ right, "&": left & right, "+": left + right, "-": left - right}
        return results[text] if text in results else left * right

    def _constant_atom(self, depth: int) -> int:
        negative = False
        steps = 0
        while self._token.text in ("-", "+", "~") and self._token.kind == "punct":
            sign = self._next().text
            steps += 1
            if sign == "-":
                negative = not negative
            elif sign == "~":
                inner = ~self._constant_atom(depth + 1) if depth < MAX_DEPTH else 0
                return -inner if negative else inner
        token = self._next()
        if token.kind == "integer":
            value = token.bits[1]
        elif token.text == "(":
            value = self._constant(0, depth + 1)
            self._expect(")", "to close the parenthesis")
        elif token.text == "WARP_SZ":
            value = 32
        else:
            self._at -= token.kind != "end"
            raise self._fail(f"expected a constant, found `{token.text}`")
        return -value if negative else value
