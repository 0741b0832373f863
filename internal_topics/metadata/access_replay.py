"""Replay of access records (Kafka: AclsDelta, ScramDelta, DelegationTokenDelta, ClientQuotasDelta)."""

from collections.abc import Callable, Mapping
from typing import Any

from kseg.internal_topics.metadata.access_image import (
    AccessImage,
    Acl,
    DelegationToken,
    QuotaEntity,
    ScramCredential,
)

Values = Mapping[str, Any]


class AccessReplay:
    """The state during a replay. apply: one record, by its type; returns a remark if the record is unusual, else an empty string."""

    def __init__(self) -> None:
        self._acls: dict[str, Acl] = {}
        self._scram: dict[tuple[int, str], ScramCredential] = {}
        self._tokens: dict[str, DelegationToken] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}

    def image(self) -> AccessImage:
        """A snapshot of the current state; the replay may continue."""
        return AccessImage(self._acls, self._scram, self._tokens, self._quotas)

    def apply(self, type_id: int, values: Values) -> str:
        return ACCESS_EFFECTS[type_id](self, values)

    def _acl(self, values: Values) -> str:
        self._acls[values["id"]] = Acl(
            values["id"],
            values["resourceType"],
            values["resourceName"],
            values["patternType"],
            values["principal"],
            values["host"],
            values["operation"],
            values["permissionType"],
        )
        return ""

    def _remove_acl(self, values: Values) -> str:
        return _removed(self._acls, values["id"], "an ACL")

    def _credential(self, values: Values) -> str:
        key = values["mechanism"], values["name"]
        self._scram[key] = ScramCredential(
            values["name"],
            values["mechanism"],
            values["iterations"],
            values["salt"],
            values["storedKey"],
            values["serverKey"],
        )
        return ""

    def _remove_credential(self, values: Values) -> str:
        return _removed(self._scram, (values["mechanism"], values["name"]), "a SCRAM credential")

    def _token(self, values: Values) -> str:
        self._tokens[values["tokenId"]] = DelegationToken(
            values["tokenId"],
            values["owner"],
            values["requester"],
            values["renewers"],
            values["issueTimestamp"],
            values["maxTimestamp"],
            values["expirationTimestamp"],
        )
        return ""

    def _remove_token(self, values: Values) -> str:
        return _removed(self._tokens, values["tokenId"], "a delegation token")

    def _quota(self, values: Values) -> str:
        entity = quota_entity(values)
        if not values["remove"]:
            self._quotas.setdefault(entity, {})[values["key"]] = values["value"]
            return ""
        of_entity = self._quotas.get(entity, {})
        odd = _removed(of_entity, values["key"], "a client quota")
        if not of_entity:
            self._quotas.pop(entity, None)
        return odd


def quota_entity(values: Values) -> QuotaEntity:
    """The entity of a ClientQuotaRecord."""
    pairs = {each["entityType"]: each["entityName"] for each in values["entity"]}
    return tuple(sorted(pairs.items()))


def _removed(state: dict[Any, Any], key: object, what: str) -> str:
    return "" if state.pop(key, None) is not None else f"{what} is removed that is not there: {key}"


ACCESS_EFFECTS: Mapping[int, Callable[[AccessReplay, Values], str]] = {
    10: AccessReplay._token,
    11: AccessReplay._credential,
    14: AccessReplay._quota,
    18: AccessReplay._acl,
    19: AccessReplay._remove_acl,
    22: AccessReplay._remove_credential,
    26: AccessReplay._remove_token,
}
