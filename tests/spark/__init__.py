"""A package, so that the fixtures of its scope end when its tests do: without this file they would live as long as the session."""
