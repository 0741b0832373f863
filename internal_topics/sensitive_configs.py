"""Which configurations are secrets: a ConfigRecord contains them in clear text.

Kafka's own rule, by which it hides values when it describes or logs them (KafkaConfig.maybeSensitive, KafkaConfigSchema.isSensitive):

1. of a broker: passwords, and unknown names; a name may have a listener prefix
   (`listener.name.<listener>.[<mechanism>.]<name>`, DynamicBrokerConfig.brokerConfigSynonyms);
2. of a topic or a group: unknown names, as none of the known ones is a password;
3. of a broker's loggers and of client metrics: nothing;
4. of any other kind of resource: everything.

Names that 4.0 removed are known here: they are in the metadata logs of older clusters, and none of them is a password.

The names are data, `schemas/config-names-4.3.1.json`, which `python -m tests.kafka.config_names` writes from Kafka's jars.
"""

import json
import pkgutil
import re
from collections.abc import Mapping
from functools import cache

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32  # Kafka: ConfigResource.Type
_FILE = "config-names-4.3.1.json"
_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
# Names that a broker accepts for one SASL mechanism of a listener (Kafka: DynamicBrokerConfig.ListenerMechanismConfigs).
_OF_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_UNTIL_4_0_OF_TOPIC = (
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
)
_UNTIL_4_0_OF_BROKER = ("log.message.downconversion.enable", "log.message.timestamp.difference.max.ms")
# Set dynamically only, so not among a broker's static names (Kafka: QuotaConfig.brokerQuotaConfigs).
_DYNAMIC_OF_BROKER = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


def is_sensitive(resource_type: int, name: str) -> bool:
    """Whether the value of a configuration may be a secret. resource_type: of the ConfigRecord."""
    if resource_type == _BROKER:
        base = _without_listener(name)
        is_known = base in _names("broker") or base in (*_DYNAMIC_OF_BROKER, *_UNTIL_4_0_OF_BROKER)
        return not is_known or base in _names("broker_passwords")
    if resource_type == _TOPIC:
        return name not in _names("topic") and name not in _UNTIL_4_0_OF_TOPIC
    if resource_type == _GROUP:
        return name not in _names("group")
    return resource_type not in (_BROKER_LOGGER, _CLIENT_METRICS)


def _without_listener(name: str) -> str:
    match = _LISTENER.fullmatch(name)
    if match is None:
        return name
    of_mechanism = (each for each in _OF_MECHANISM if match[1].endswith(f".{each}"))
    return next(of_mechanism, match[1])


def _names(kind: str) -> frozenset[str]:
    return _all_names()[kind]


@cache
def _all_names() -> Mapping[str, frozenset[str]]:
    data = pkgutil.get_data("kseg.internal_topics.schemas", _FILE)
    assert data is not None, "the names are part of the package"
    return {kind: frozenset(names) for kind, names in json.loads(data).items()}
