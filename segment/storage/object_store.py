"""Objects of a store that fsspec supports (S3, Google Cloud Storage, Azure, HDFS, SFTP, …) as files.

Names are listed a directory at a time, and once. A read requests a range of the object that was listed, with its ETag if the store
accepts one, so that replacing the object in the meantime causes an error, and the two versions are never mixed. Credentials,
endpoints and proxies come from the store's own library (for S3: environment, profiles, instance role) or from fsspec's
configuration.
"""

import importlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kseg.segment.errors import OUT_OF_REACH, UsageError
from kseg.segment.storage.origin import Item, ItemKind, out_of_reach

_EXTRA = "pip install 'kseg[remote]'"
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "content_md5", "generation")
_TIME_KEYS = ("LastModified", "last_modified", "mtime", "updated", "created", "modified")
_NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
)
_UNREACHABLE = (
    *(
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ConnectionClosedError",
        "ProxyConnectionError",
    ),
    *(
        "ClientConnectorError",
        "ClientOSError",
        "ServerDisconnectedError",
        "ServerTimeoutError",
        "ClientPayloadError",
    ),
    *("FSTimeoutError", "HTTPClientError", "ResponseStreamingError", "IncompleteReadError", "gaierror"),
)
_CHANGED = "the object was replaced while it was read: its ETag or size is no longer the one that was listed; start again"
_GONE = "the object was deleted after it was listed; start again"


class ObjectStore:
    """A bucket, or whatever a URL's scheme and first part name. url: `s3://bucket`. Raises UsageError for an unsupported scheme,
    OSError if a package is missing or the store rejects the request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.damage: str | None = None
        try:
            fsspec = importlib.import_module("fsspec")
        except ImportError:
            raise out_of_reach(f"URLs are read with fsspec, which is not installed: {_EXTRA}") from None
        try:
            self._store, root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise out_of_reach(
                f"a package that this URL needs is not installed ({error}): {_EXTRA}"
            ) from error
        except ValueError as error:
            raise UsageError(f"{url} cannot be read: {error}") from error
        except Exception as error:
            raise readable(error, url) from error
        self._root: str = root.rstrip("/")
        self._listings: dict[str, Mapping[str, Item]] = {}

    def listing(self, inside: str) -> Mapping[str, Item]:
        """The entries directly below a prefix."""
        found = self._listings.get(inside)
        if found is None:
            found = self._listings[inside] = self._listed(inside)
        return found

    def _listed(self, inside: str) -> Mapping[str, Item]:
        path = self._path(inside)
        try:
            rows = self._store.ls(path, detail=True)
        except Exception as error:
            raise readable(error, self.url) from error
        items = {name: _item(self._with_size(row)) for name, row in _named(rows, path)}
        if not items and inside:
            head, _, name = inside.rpartition("/")
            above = self.listing(head).get(name)
            if above is None or above.kind is ItemKind.FILE:
                kind = FileNotFoundError if above is None else NotADirectoryError
                raise kind(
                    2 if above is None else 20,
                    "No such file or directory" if above is None else "Not a directory",
                    path,
                )
        return items

    def _with_size(self, row: dict[str, Any]) -> Mapping[str, Any]:
        """Request the size of a file from a listing without sizes (HTTP)."""
        if row.get("type") == "directory" or row.get("size") is not None:
            return row
        try:
            told: Mapping[str, Any] = self._store.info(row["name"])
        except Exception as error:
            raise readable(error, self.url) from error
        if told.get("size") is None and told.get("type") != "directory":
            raise out_of_reach(f"{self.url} does not report the size of {row['name']}")
        return told

    def read(self, inside: str, item: Item, start: int, stop: int) -> bytes:
        """Read a range with one request."""
        path = self._path(inside)
        try:
            with self._store.open(path, "rb", cache_type="none", block_size=max(1, stop - start)) as file:
                if not _is_same(
                    _item(file.details if hasattr(file, "details") else self._store.info(path)), item
                ):
                    raise out_of_reach(_CHANGED)
                file.seek(start)
                data: bytes = file.read(stop - start)
        except FileNotFoundError:
            raise out_of_reach(_GONE) from None
        except Exception as error:
            raise readable(error, self.url) from error
        if len(data) != stop - start:
            raise out_of_reach(_CHANGED)
        return data

    def is_seekable(self, inside: str) -> bool:
        """Always true: every store reads ranges."""
        return True

    def _path(self, inside: str) -> str:
        return f"{self._root}/{inside}" if inside else self._root


def _named(rows: list[dict[str, Any]], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Entries of a listing by the last part of their names, which may include the prefix itself."""
    for row in rows:
        full = str(row["name"]).rstrip("/")
        if full.strip("/") != path.strip("/"):
            yield full.rpartition("/")[2], row


def _item(row: Mapping[str, Any]) -> Item:
    if row.get("type") == "directory":
        return Item(ItemKind.DIRECTORY)
    if row.get("type") not in ("file", None):
        return Item(ItemKind.OTHER)
    written = next((row[key] for key in _TIME_KEYS if row.get(key)), None)
    version = next((str(row[key]) for key in _VERSION_KEYS if row.get(key)), "")
    return Item(ItemKind.FILE, int(row.get("size") or 0), _nanoseconds(written), version)


def _is_same(now: Item, listed: Item) -> bool:
    """Whether an object is the one that was listed, as far as both have the same attributes: HTTP has only a size."""
    return now.size_bytes == listed.size_bytes and all(
        one == other
        for one, other in ((now.version, listed.version), (now.mtime_ns, listed.mtime_ns))
        if one and other
    )


def _nanoseconds(written: object) -> int:
    if isinstance(written, str):
        try:
            written = datetime.fromisoformat(written)
        except ValueError:
            return 0
    if isinstance(written, datetime):
        known = written if written.tzinfo else written.replace(tzinfo=UTC)
        return int(known.timestamp()) * 1_000_000_000 + known.microsecond * 1000
    return int(written * 1e9) if isinstance(written, int | float) else 0


def readable(error: Exception, url: str) -> OSError:
    """Convert an error of a store to an OSError with a readable sentence."""
    chain = [error]
    while chain[-1].__cause__ is not None and len(chain) < 8 and isinstance(chain[-1].__cause__, Exception):
        chain.append(chain[-1].__cause__)
    kinds = {kind.__name__ for each in chain for kind in type(each).__mro__}
    codes = {_code(each) for each in chain}
    said = _sentence(error)
    if isinstance(error, OSError) and error.errno == OUT_OF_REACH:
        return error
    if "FileExpired" in kinds or "PreconditionFailed" in codes or "412" in codes:
        return out_of_reach(_CHANGED)
    if kinds.intersection(_NO_CREDENTIALS):
        return out_of_reach(
            f"no credentials for {url} were found ({said}); give them as its own tools take them"
        )
    if "NoSuchBucket" in codes or "bucket does not exist" in said:
        return out_of_reach(f"there is no bucket {url}")
    if kinds.intersection(_UNREACHABLE) or isinstance(error, TimeoutError | ConnectionError):
        return out_of_reach(f"{url} cannot be reached ({said})")
    if isinstance(error, PermissionError):
        return out_of_reach(f"{url} refuses access ({said})")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return type(error)(error.errno or 2, "No such file or directory")
    return out_of_reach(f"{url} answers with an error ({said})")


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _sentence(error: Exception) -> str:
    """The message of an exception on one line, without the errno that an OSError adds."""
    words = (
        str(error.strerror if isinstance(error, OSError) and error.strerror else error)
        or type(error).__name__
    )
    return " ".join(words.split())[:300].rstrip(".")
