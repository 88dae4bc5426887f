"""The words of the command line; each is one call of `tinygpu.api`, and its printing."""
