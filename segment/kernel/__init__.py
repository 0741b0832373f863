"""The room `segment/kernel`: the compiled hot loops; every module here is plain Python typed by the .pxd beside it."""
