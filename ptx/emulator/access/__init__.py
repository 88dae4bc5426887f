"""Reading and writing each memory, with bounds, validity and race checks."""
