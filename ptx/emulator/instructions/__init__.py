"""What each PTX opcode does, as closures over cohorts of warps."""
