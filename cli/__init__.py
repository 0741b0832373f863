"""The room `cli`: words in, words out: one file per command."""
