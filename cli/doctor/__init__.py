"""`kseg doctor`: combine the results of several commands about the same data directories."""
