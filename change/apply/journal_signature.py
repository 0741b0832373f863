"""Signs the lines of a journal, so that a later undo can tell its own journals from planted ones.

The checksums of a journal detect accidents; anyone can compute them (module journal_lines). The bytes that an undo truncates or removes
exist nowhere else, because the change itself wrote them. Only a signed journal is trusted with that; with any other journal an undo
keeps those bytes (module undo_quarantine).

    key        32 random bytes in $XDG_STATE_HOME/kseg/journal-key (default ~/.local/state), readable only by its owner, created
               by the first change
    nonce      8 random bytes in the first line: the same change of the same run, repeated after an undo, has other signatures
    signature  HMAC-SHA-256 over the line and the signature of the line before it; the last field before the sum

A signature does not expire: a copy of a journal could be restored after it was undone or forgotten, when the same bytes may
belong to a later change. So the first signature of a finished journal is recorded beside the key (`spent-journals`, one line
each), and a journal with a recorded signature counts as unsigned.

Another user, another machine or a new container has another key, and so does a process that cannot store one. Their journals are
followed too, but as unsigned ones.
"""

import os
import pwd
import re
import stat
from collections.abc import Iterable
from contextlib import suppress

_KEY_BYTES = 32
_NONCE_BYTES = 8
_HEX = 32
_SIGNATURE = re.compile(rb'(.*),"signature":"([0-9a-f]{%d})","sum":"[0-9a-f]*"\}' % _HEX, re.DOTALL)
_SPENT = "spent-journals"
_MOST_SPENT_BYTES = 4 << 20
_keys: dict[str, bytes] = {}  # by the path where they are stored


def new_nonce() -> bytes:
    """Random bytes for the first line of a journal, as hexadecimal digits."""
    return os.urandom(_NONCE_BYTES).hex().encode()


def signature(head: bytes, before: bytes) -> bytes:
    """The signature of a line without its last fields. before: the bytes of the lines before it."""
    match = _SIGNATURE.fullmatch(before.removesuffix(b"\n").rpartition(b"\n")[2])
    return _signature(_key(), b"" if match is None else match[2], head)


def is_signed(data: bytes) -> bool:
    """Whether all lines of a journal were signed with the key of this user on this machine."""
    return _has_signatures(data) and _first(data) + b"\n" not in _spent()


def _has_signatures(data: bytes) -> bool:
    import hmac

    key = _keys.get(_path()) or _stored(_path())
    if key is None or not data:
        return False
    before = b""
    for line in data.removesuffix(b"\n").split(b"\n"):
        match = _SIGNATURE.fullmatch(line)
        if match is None or not hmac.compare_digest(_signature(key, before, match[1]), match[2]):
            return False
        before = match[2]
    return True


def spend(journals: Iterable[bytes]) -> None:
    """Record that journals are spent, if that can be stored. journals: the lines of each."""
    spent = _spent()
    firsts = [_first(data) + b"\n" for data in journals if _has_signatures(data)]
    firsts = [first for first in firsts if first not in spent]
    if not firsts:
        return
    path = _spent_path()
    with suppress(OSError):
        if len(spent) > _MOST_SPENT_BYTES:  # with more than a hundred thousand, the older half is dropped
            _shorten(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, b"".join(firsts))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _shorten(path: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        kept = _spent()[_MOST_SPENT_BYTES // 2 :]
        os.write(descriptor, kept[kept.index(b"\n") + 1 :])
        os.fsync(descriptor)
        os.rename(temporary, path)
    finally:
        os.close(descriptor)


def _first(data: bytes) -> bytes:
    """The signature of a journal's first line, empty if it has none."""
    match = _SIGNATURE.fullmatch(data.partition(b"\n")[0])
    return b"" if match is None else bytes(match[2])


def _spent_path() -> str:
    return os.path.join(os.path.dirname(_path()), _SPENT)


def _spent() -> bytes:
    return _private(_spent_path(), 2 * _MOST_SPENT_BYTES) or b""


def _signature(key: bytes, before: bytes, head: bytes) -> bytes:
    import hmac

    return hmac.new(key, before + head, "sha256").hexdigest()[:_HEX].encode()


def _key() -> bytes:
    path = _path()
    if path not in _keys:
        _keys[path] = _stored(path) or _made(path) or os.urandom(_KEY_BYTES)
    return _keys[path]


def _path() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        home = os.path.expanduser("~")
        with suppress(KeyError):  # not $HOME: sudo may keep that of another user
            home = pwd.getpwuid(os.geteuid()).pw_dir
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "kseg", "journal-key")


def _stored(path: str) -> bytes | None:
    """The stored key; None if there is none, or if another user could have written or read it."""
    key = _private(path, _KEY_BYTES + 1)
    return key if key is not None and len(key) == _KEY_BYTES else None


def _private(path: str, limit_bytes: int) -> bytes | None:
    """The content of a file that only its owner, this user, can have written and read; None for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        if not stat.S_ISREG(status.st_mode) or not is_private:
            return None
        # a read allocates the requested size; one byte more shows whether the file has grown
        return os.read(descriptor, min(limit_bytes, status.st_size + 1))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _made(path: str) -> bytes | None:
    """Store a new key; processes that do so at the same time all get the same one. None if it cannot be stored."""
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, os.urandom(_KEY_BYTES))
            os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.close(descriptor)
            os.unlink(temporary)
    except OSError:
        return None
    return _stored(path)
