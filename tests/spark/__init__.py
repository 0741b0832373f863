"""A package, so that fixtures with package scope end with its tests. Without this file they would live as long as the session."""
