# Other kernels call these, and they are not typed.
