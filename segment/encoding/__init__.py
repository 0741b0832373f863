"""Batches and messages, written."""
