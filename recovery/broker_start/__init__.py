"""Whether and how a 4.3.1 broker would start on data directories, determined without touching them."""
