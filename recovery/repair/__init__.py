"""`recover`: plan a repair by one of two policies, carry it out, and update the files of the data directory."""
