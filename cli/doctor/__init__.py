"""`kseg doctor`: what several commands know about the same data directories, put together."""
