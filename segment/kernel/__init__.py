"""The compiled hot loops; every module is plain Python, typed by the .pxd beside it."""
