"""Parts written in C in a `.pxd` and compiled into the kernels that use them, each with its equivalent in plain Python."""
