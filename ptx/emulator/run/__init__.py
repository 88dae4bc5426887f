"""Getting a launch ready and running it: arguments, placement, blocks, barriers, the scheduler."""
