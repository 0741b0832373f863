"""Compression codecs: one entry point (`codec`), and a module for each format."""
