"""The S3 client of the forked programs tries twice. By default it tries five times, with pauses of two seconds for each refused object."""

from s3fs import S3FileSystem  # type: ignore[import-untyped]

S3FileSystem.retries = 2
