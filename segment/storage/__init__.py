"""Files that are on no disk: objects of a store that fsspec knows, members of a tar archive."""
