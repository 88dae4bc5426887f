"""Launching: what a kernel is, and what a launch of it needs for a problem or for arrays, all of it as data."""
