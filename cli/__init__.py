"""The command line: options in, text and JSON out."""
