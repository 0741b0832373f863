"""`recover`: from evidence to a plan, by one of two policies, and what surrounds a partition."""
