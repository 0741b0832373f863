"""Transactional ids that no producer can use any more, because transaction.version was lowered to 0.

The record of an id whose producer has used the second protocol (KIP-890, transaction.version 2) says so in a tagged field. At level 0 a
coordinator writes version 0 of the value, which has no tagged fields, and fails: 4.3.1 answers InitProducerId with UNSUPPORTED_VERSION.
After that it answers CONCURRENT_TRANSACTIONS even if the level is raised again, until it is loaded anew (both observed with 4.3.1). At
level 1 values are of version 1.
"""

from collections.abc import Iterable, Iterator, Sequence

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.transactions.transaction_log import TransactionalId
from kseg.segment.counted import counted
from kseg.segment.diagnosis import UnusableTransactionalIds
from kseg.segment.findings import Finding

_FEATURE = "transaction.version"


def lowered_version(images: Sequence[MetadataImage], ids: Iterable[TransactionalId]) -> Iterator[Finding]:
    """The finding about the newest metadata log; none if it may be incomplete. An id whose transaction was not ended when the level was
    lowered is not counted: a coordinator aborts that first, and the id goes on."""
    newest = max(images, key=lambda each: (each.epoch, each.end_offset), default=None)
    if newest is None or not newest.is_certain or newest.features.get(_FEATURE, 0):
        return
    names = tuple(
        sorted(
            known.transactional_id
            for known in ids
            if known.client_version and known.is_loaded and known.state in ("CompleteCommit", "CompleteAbort")
        )
    )
    if not names:
        return
    more = f" (and {counted(len(names) - 1, 'more id')} likewise)" if len(names) > 1 else ""
    message = (
        f"{_FEATURE} has level 0, but transactional id {names[0]} was used by a producer of the second protocol: its coordinator answers "
        f"UNSUPPORTED_VERSION to every new producer with this id{more}"
    )
    about = UnusableTransactionalIds(names)
    yield Finding.about("transaction-version-lowered", newest.path, message, about)
