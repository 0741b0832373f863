"""`retain`: which segments a broker's retention would delete, and why; marking them, purging what is marked."""
