"""What a running kernel is: registers, memories, clocks, resident CTAs, counters."""
