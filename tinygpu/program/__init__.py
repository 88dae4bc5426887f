"""Programs: what a machine's `program` was traced to."""

# The language traces programs and names their nodes, and nodes name its tiles: whoever is imported first, it begins.
import tinygpu.language  # noqa: F401
