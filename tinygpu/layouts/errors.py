"""The error of every layout operation that refuses."""


class LayoutError(ValueError):
    """A layout is malformed, or an operation's condition does not hold; the text gives the numbers."""
