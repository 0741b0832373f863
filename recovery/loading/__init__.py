"""Policy `kafka`: simulate what a broker's log loading does with a partition directory, without touching it."""
