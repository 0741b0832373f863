"""`kseg transactions`: open and hanging transactions, and the commands that end them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from kseg.cli.options import CommonOptions, Json, Now, OnCluster, Paths, Verbose, duration_option

if TYPE_CHECKING:
    from kseg.internal_topics.transactions.transaction_rows import TransactionsOptions
    from kseg.jobs.events import Event
    from kseg.segment.partition.targets import Target

EXAMPLES = (
    ("What holds back consumers with read_committed?", "kseg transactions /var/lib/kafka"),
    ("The same for a script", "kseg transactions --json /var/lib/kafka"),
    ("A copy from yesterday, as of the time when it was made", "kseg transactions --now 2026-11-22T18:00:00Z /backup/kafka"),
    ("Every transaction of a topic", "kseg transactions --verbose --topic orders /var/lib/kafka"),
)  # fmt: skip


def command(
    *,
    paths: Paths,
    max_transaction_timeout_ms: Annotated[
        int,
        duration_option(
            "The brokers' transaction.max.timeout.ms: a transaction that no coordinator knows is hanging if it wrote nothing for longer."
        ),
    ] = 900_000,
    json: Json = False,
    common: CommonOptions,
    now: Now = None,
    verbose: Verbose = False,
    on: OnCluster,
) -> int:
    """List open and hanging transactions, what holds the last stable offset, and the command that ends each.

    Joins the producer state of each partition (its newest snapshot and the log after it) with the coordinators' state, from
    __transaction_state under the same PATHs. A hanging transaction is one that `kafka-transactions.sh find-hanging` would report.
    The exit status is 1 when there is one. Never writes.
    """
    from kseg.cli.coordinator_evidence import is_of_the_broker, transactions_seen
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, over_targets
    from kseg.cli.streams import complain
    from kseg.cli.text.transactions import TransactionsReport, transaction_words
    from kseg.internal_topics.transactions.transaction_rows import TransactionsOptions, partition_transactions
    from kseg.segment.partition.targets import Expansion

    is_full = json or verbose
    options = TransactionsOptions(
        now_ms=clock_ms(now), max_timeout_ms=max_transaction_timeout_ms, ended=is_full, as_json=json
    )
    style = Style(
        command="transactions",
        json=json,
        **common.shown(),
        words=transaction_words,
        report=TransactionsReport(options.now_ms),
        verbose=verbose,
        findings_are_result=True,
        errors_settle=True,
        remains=lambda row: row.get("type") == "transaction" and row.get("status") == "hanging",
    )

    def look(
        _targets: "Sequence[Target]", options: "TransactionsOptions"
    ) -> "tuple[TransactionsOptions, Sequence[Event]]":
        seen = transactions_seen(paths)
        if not seen.view.is_known and not seen.failures:
            complain(
                "kseg transactions: there is no __transaction_state under the given paths: it is unknown which open transactions hang"
            )
        return replace(options, view=seen.view, replicas=seen.replicas), [*seen.failures, *seen.events]

    return over_targets(
        partition_transactions,
        options,
        style,
        expand=Expansion.PARTITIONS,
        request=common.request(paths, on.cluster(light=True)),
        jobs=common.jobs,
        look=look,
        wanted=is_of_the_broker,
    )
