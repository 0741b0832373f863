"""Names of Kafka's own topics."""

CLUSTER_METADATA = "__cluster_metadata"
REMOTE_LOG_METADATA = "__remote_log_metadata"

# by decoder, in the order of precedence of kafka-dump-log.sh
TOPICS = {
    "offsets": "__consumer_offsets",
    "transaction-log": "__transaction_state",
    "cluster-metadata": CLUSTER_METADATA,
    "remote-log-metadata": REMOTE_LOG_METADATA,
    "share-group-state": "__share_group_state",
}
