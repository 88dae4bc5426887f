"""Replay: searches on spaces that somebody measured before; loaded by who uses it, never by a search of a machine."""
