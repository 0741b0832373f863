"""Brokers and controllers as their registration records describe them (Kafka: BrokerRegistration, ControllerRegistration)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kseg.internal_topics.metadata.metadata_image import Broker, Controller, Listener

_FENCED, _UNFENCED = 1, -1

Values = Mapping[str, Any]


def broker_of(values: Values) -> Broker:
    """The broker of a RegisterBrokerRecord."""
    return Broker(
        values["brokerId"],
        values["brokerEpoch"],
        values["incarnationId"],
        values.get("logDirs") or (),
        values["fenced"],
        values["rack"],
        _listeners(values),
        tuple(
            (each["name"], each["minSupportedVersion"], each["maxSupportedVersion"])
            for each in values["features"]
        ),
        values.get("inControlledShutdown", False),
        values.get("cordonedLogDirs"),
        values.get("isMigratingZkBroker", False),
    )


def changed_broker(old: Broker, values: Values) -> Broker:
    """A broker after a BrokerRegistrationChangeRecord; fields that the record lacks are unchanged."""
    cordoned = values.get("cordonedLogDirs")
    return replace(
        old,
        is_fenced={_FENCED: True, _UNFENCED: False}.get(values["fenced"], old.is_fenced),
        log_dirs=values.get("logDirs") or old.log_dirs,
        is_shutting_down=values.get("inControlledShutdown") == 1 or old.is_shutting_down,
        cordoned=old.cordoned if cordoned is None else cordoned,
    )


def controller_of(values: Values) -> Controller:
    """The controller of a RegisterControllerRecord."""
    return Controller(values["controllerId"], values["incarnationId"], _listeners(values))


def _listeners(values: Values) -> tuple[Listener, ...]:
    return tuple(
        Listener(each["name"], each["host"], each["port"], each["securityProtocol"])
        for each in values["endPoints"]
    )
