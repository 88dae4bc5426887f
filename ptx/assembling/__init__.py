"""Assembling: PTX text to machine code, in this process, in others side by side, or by the program ptxas."""
