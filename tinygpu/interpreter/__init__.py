"""Programs run as they are written, in NumPy."""

# Programs run themselves: whoever is imported first, the language that they come from begins.
import tinygpu.language  # noqa: F401
