"""What a kernel may return: the machine's reference, with the error that rounding explains beside every element."""
