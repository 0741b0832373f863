"""Policy `kafka`: what a broker's log loading makes of a partition directory, worked out without touching it."""
