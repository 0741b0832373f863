"""Encode batches and messages."""
