"""Work over many targets, in this process or in worker processes."""
