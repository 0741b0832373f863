"""`retain`: decide which segments a broker's retention would delete and why, mark them, and purge marked files."""
