"""What shows that the rules of each instruction are true, one file for each file of `tinygpu.ptx.isa`."""
