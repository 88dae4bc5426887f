"""A page for every machine that ships, and an index: docs/machines, written by `python -m tinygpu.api.pages`."""
