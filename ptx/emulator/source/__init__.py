"""PTX text: tokens, syntax tree, functions copied into their callers, basic blocks."""
