"""The compiled hot loops. Every module here is plain Python, typed by the .pxd beside it."""
