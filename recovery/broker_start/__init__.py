"""Predict whether and how a 4.3.1 broker would start on data directories, without touching them."""
