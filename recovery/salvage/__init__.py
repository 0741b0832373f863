"""Policy `salvage`: keep every valid batch, quarantine the rest."""
