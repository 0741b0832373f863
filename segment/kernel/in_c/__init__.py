"""What stands in C in a `.pxd` and is compiled into the kernels that use it; beside each, the same for plain Python."""
