"""Files that are not on a disk: objects of a store that fsspec supports, members of a tar archive."""
