"""Access control in a cluster, from its metadata log: ACLs, SCRAM credentials, delegation tokens, client quotas.

(Kafka: AclsImage, ScramImage, DelegationTokenImage, ClientQuotasImage.)
"""

from collections.abc import Mapping
from dataclasses import field

from kseg.segment.values import dataclass

QuotaEntity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Acl:
    """In Kafka's numbers: see `cluster_names`."""

    id: str
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """salt, stored_key, server_key: secrets."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """The log does not contain the token's HMAC."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AccessImage:
    """acls: by id; scram: by mechanism and user; tokens: by id; quotas: by entity (pairs of type and name, sorted; the name None is the
    default), each by key."""

    acls: Mapping[str, Acl] = field(default_factory=dict)
    scram: Mapping[tuple[int, str], ScramCredential] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
