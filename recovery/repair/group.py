"""`recover` for many targets at a time in one process."""
