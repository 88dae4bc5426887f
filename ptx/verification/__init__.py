"""Verification: a kernel's PTX runs in the emulator, on problems that show its mistakes, beside the reference."""
