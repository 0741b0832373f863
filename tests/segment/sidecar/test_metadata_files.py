"""partition.metadata, meta.properties, .kafka_cleanshutdown, quorum-state (fact sheet §1.4, §1.5, §1.7).

Kafka 4.3.1 decided for exactly these bytes what is accepted and what is an error.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.errors import FormatError
from kseg.segment.java import uuids
from kseg.segment.java.properties import decode_properties, encode_properties
from kseg.segment.sidecar.metadata_files import (
    CleanShutdown,
    MetaProperties,
    PartitionMetadata,
    QuorumState,
    QuorumStateFault,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    decode_quorum_state,
    encode_meta_properties,
    encode_partition_metadata,
)
from tests.support.encoders import encode_clean_shutdown, encode_quorum_state

ID = "XqZeFaA4SYahW3xVBVhQJQ"
UUIDS = st.binary(min_size=16, max_size=16).filter(any).map(uuids.uuid_text)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_round_trips(data: bytes) -> None:
    text = uuids.uuid_text(data)
    assert len(text) == 22 and uuids.uuid_bytes(text) == data


def test_known_uuids_have_kafkas_text() -> None:
    assert uuids.uuid_text(bytes(16)) == uuids.ZERO == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuids.uuid_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"
    with pytest.raises(FormatError):
        uuids.uuid_text(bytes(15))


@pytest.mark.behaviour("F55")
@given(UUIDS)
def test_partition_metadata_round_trip(topic_id: str) -> None:
    data = encode_partition_metadata(PartitionMetadata(topic_id))
    assert len(data) == 43
    assert decode_partition_metadata(data) == PartitionMetadata(topic_id)


@pytest.mark.behaviour("F55")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"version: 0\ntopic_id: {ID}", PartitionMetadata(ID)),
        (f"version: 0\ntopic_id: {ID}\nfoo", PartitionMetadata(ID)),
        (f"v: 5\nx: {ID}==", PartitionMetadata(ID, 5)),
        (f"version:\t 0: \ntopic_id:  {ID}", PartitionMetadata(ID)),
        (f"version: 0\ntopic_id: {ID[:-1]}R", PartitionMetadata(ID)),
    ],
)
def test_partition_metadata_that_kafka_reads_is_accepted(data: str, expected: PartitionMetadata) -> None:
    assert decode_partition_metadata(data.encode()) == expected


@pytest.mark.behaviour("F55")
@pytest.mark.parametrize(
    "data",
    [
        "",
        "version: 0",
        f"version: -1\ntopic_id: {ID}",
        f"version:0\ntopic_id: {ID}",
        f"version: 0 \ntopic_id: {ID}",
        f"version: 0\ntopic_id: {ID} ",
        f"version: 0\ntopic_id: {ID}=",
        f"version: 0\ntopic_id: {ID[:-1]}",
        f"version: 0\ntopic_id: {ID[:-2]}+Q",
        f"version: 0\n\ntopic_id: {ID}",
        f"version: 0\ntopic_id: {uuids.ZERO}",
        "version: 0\ntopic_id: \ud800",
    ],
)
def test_partition_metadata_that_kafka_refuses_is_refused(data: str) -> None:
    with pytest.raises(FormatError):
        decode_partition_metadata(data.encode("utf-8", "surrogatepass"))


@pytest.mark.behaviour("F55")
@pytest.mark.parametrize("topic_id", [uuids.ZERO, "", "x"])
def test_partition_metadata_without_an_id_is_not_written(topic_id: str) -> None:
    with pytest.raises(FormatError):
        encode_partition_metadata(PartitionMetadata(topic_id))


# --- Java properties: left as Java reads it
@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"a=b", {"a": "b"}),
        (b"a:b", {"a": "b"}),
        (b"a b", {"a": "b"}),
        (b"a = b ", {"a": "b "}),
        (b"a", {"a": ""}),
        (b"=b", {"": "b"}),
        (b"a\\=b=c\\:d", {"a=b": "c:d"}),
        (b"#x\n!y\n a=b", {"a": "b"}),
        (b"a=b\\\n   c", {"a": "bc"}),
        (b"a=\\u00e9\xe9", {"a": "éé"}),
        (b"a=\\q\\t\\n\\r\\f\\\\", {"a": "q\t\n\r\f\\"}),
        (b"a=b\rc=d\r\ne=f", {"a": "b", "c": "d", "e": "f"}),
        (b"a=b\\", {"a": "b"}),
        (b"#c\\\na=b", {"a": "b"}),
        (b"a : = b", {"a": "= b"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=\\\n\n#b\nc=d", {"a": "", "c": "d"}),
        (b"  \\\n a=b", {"a": "b"}),
        (b"a=\\ b", {"a": " b"}),
        (b"a=\\ud83d\\ude00", {"a": "😀"}),
    ],
)
def test_properties_are_read_like_java(data: bytes, pairs: dict[str, str]) -> None:
    assert decode_properties(data) == pairs


@pytest.mark.parametrize("data", [b"a=\\u00g9", b"a=\\u12", b"a=\\u+123", b"\\u"])
def test_properties_that_java_refuses_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_properties(data)


@given(st.dictionaries(st.text(), st.text(), max_size=6), st.integers(0, 4_000_000_000_000))
def test_properties_round_trip(pairs: dict[str, str], now_ms: int) -> None:
    assert decode_properties(encode_properties(pairs, now_ms)) == pairs


# --- meta.properties


@given(INT32, st.text(max_size=20), st.none() | UUIDS, st.integers(0, 4_000_000_000_000))
def test_meta_properties_round_trip(
    node_id: int, cluster_id: str, directory_id: str | None, now_ms: int
) -> None:
    for version in (0, 1):
        properties = MetaProperties(version, node_id, cluster_id, directory_id)
        assert decode_meta_properties(encode_meta_properties(properties, now_ms)) == properties


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", MetaProperties(0)),
        (b"broker.id=1\n", MetaProperties(0, 1)),
        (b"version=0\nbroker.id=-1\ncluster.id=q\nnode.id=3", MetaProperties(0, -1, "q")),
        (b"version=01\nnode.id=+1\ncluster.id=", MetaProperties(1, 1, "")),
        (
            f"version=0\nbroker.id=1\ndirectory.id={ID}".encode(),
            MetaProperties(0, 1, None, ID),
        ),
    ],
)
def test_meta_properties_that_kafka_reads_are_accepted(data: bytes, expected: MetaProperties) -> None:
    assert decode_meta_properties(data) == expected


@pytest.mark.parametrize(
    ("data", "sign"),
    [
        (b"version=1\nnode.id=1", "no cluster.id"),
        (b"version=1\ncluster.id=x", "no node.id"),
        (b"version=2\nnode.id=1\ncluster.id=abc", "unknown version '2'"),
        (b"version=x", "unknown version 'x'"),
        (b"version=1\nnode.id=a\ncluster.id=abc", "node.id is not a number"),
        (b"version=1\nnode.id=1 \ncluster.id=abc", "node.id is not a number"),
        (b"version=0\nbroker.id=", "broker.id is not a number"),
        (b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=zz", "not a valid uuid"),
    ],
)
def test_meta_properties_that_kafka_refuses_are_refused(data: bytes, sign: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode_meta_properties(data)
    assert sign in str(caught.value)


# --- .kafka_cleanshutdown


@pytest.mark.behaviour("F56")
@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b"", None),
        (b'{"version":0,"brokerEpoch":103}', 103),
        (b'{"version":5,"brokerEpoch":-1,"x":[1]}', -1),
        (b'{"brokerEpoch":"7"}', 7),
        (b'{"brokerEpoch":1.5}', 1),
        (b'{"brokerEpoch":1} x', 1),
        (b'{"version":null,"brokerEpoch":1}', 1),
        (b'{"version":"x","brokerEpoch":1}', None),
        (b'{"version":0}', None),
        (b'{"brokerEpoch":null}', None),
        (b'{"brokerEpoch":9223372036854775808}', None),
        (b'{"brokerEpoch":true}', None),
        (b'{"brokerEpoch":""}', None),
        (b"[1]", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
        (b'{"brokerEpoch":' + b"9" * 10_000 + b"}", None),
    ],
)
def test_clean_shutdown_file_is_decoded(data: bytes, epoch: int | None) -> None:
    assert decode_clean_shutdown(data) == CleanShutdown(epoch)


@pytest.mark.behaviour("F56")
@given(st.none() | INT64)
def test_clean_shutdown_round_trip(epoch: int | None) -> None:
    assert decode_clean_shutdown(encode_clean_shutdown(CleanShutdown(epoch))) == CleanShutdown(epoch)


# --- quorum-state

V0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
V1 = b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'


def test_quorum_state_versions_are_encoded_and_decoded() -> None:
    v0 = QuorumState(0, 1, 2, -1, cluster_id="", applied_offset=0, current_voters=(1,))
    v1 = QuorumState(1, 1, 2, -1, voted_directory_id=uuids.ZERO)
    for data, state in ((V0, v0), (V1, v1)):
        assert decode_quorum_state(data) == decode_quorum_state(data + b"\nxx") == state
        assert encode_quorum_state(state) == data
    assert decode_quorum_state(V0[:-1] + b',"extra":1}') == v0


REPLICA = st.integers(-1, 2**31 - 1)


@given(REPLICA, INT32, REPLICA, INT64, st.text(max_size=5), st.lists(INT32, max_size=4))
def test_quorum_state_round_trip(a: int, b: int, c: int, d: int, cluster: str, voters: list[int]) -> None:
    state = QuorumState(0, a, b, c, None, cluster, d, tuple(voters))
    assert decode_quorum_state(encode_quorum_state(state)) == state


IO, RUNTIME, NUMBER = "UncheckedIOException", "RuntimeException", "NumberFormatException"


@pytest.mark.parametrize(
    ("data", "kafka_exception"),
    [
        (b"", IO),
        (b"[]", IO),
        (b"{}", IO),
        (b"{", IO),
        (b"[" * 100_000, IO),
        (b"\xff", IO),
        (V0.replace(b'"leaderId":1,', b""), RUNTIME),
        (V0.replace(b'"clusterId":"",', b""), RUNTIME),
        (V0.replace(b'"clusterId":""', b'"clusterId":3'), RUNTIME),
        (V0.replace(b'"appliedOffset":0,', b""), RUNTIME),
        (V0.replace(b'[{"voterId":1}]', b"7"), RUNTIME),
        (V0.replace(b'[{"voterId":1}]', b"[1]"), RUNTIME),
        (V0.replace(b'[{"voterId":1}]', b"null"), "NullPointerException"),
        (V0.replace(b'"leaderId":1', b'"leaderId":-7'), "IllegalArgumentException"),
        (
            V1.replace(
                b'"leaderId":1,"leaderEpoch":2,"votedId":-1', b'"leaderId":-1,"leaderEpoch":2,"votedId":-7'
            ),
            "IllegalArgumentException",
        ),
        (V0.replace(b'"leaderId":1', b'"leaderId":1.0'), NUMBER),
        (V0.replace(b'"leaderId":1', b'"leaderId":"1"'), NUMBER),
        (V0.replace(b'"leaderId":1', b'"leaderId":4294967297'), NUMBER),
        (V0.replace(b'"data_version":0', b'"data_version":2'), "IllegalStateException"),
        (V0.replace(b'"data_version":0', b'"data_version":-1'), "IllegalStateException"),
        (V0.replace(b'"data_version":0', b'"data":0'), IO),
        (V0.replace(b'"data_version":0', b'"data_version":NaN'), IO),
        (V1.replace(b'"AAAAAAAAAAAAAAAAAAAAAA"', b'"!!"'), "IllegalArgumentException"),
        (V1.replace(b',"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"', b""), RUNTIME),
    ],
)
def test_quorum_state_that_kafka_refuses_is_refused(data: bytes, kafka_exception: str) -> None:
    """The exceptions are those of a real 4.3.1 node."""
    with pytest.raises(QuorumStateFault) as raised:
        decode_quorum_state(data)
    assert raised.value.kafka_exception == kafka_exception


def test_vote_beside_a_leader_is_ignored() -> None:
    """A real 4.3.1 node starts with it."""
    assert decode_quorum_state(V0.replace(b'"votedId":-1', b'"votedId":-7')).voted_id == -7


@pytest.mark.parametrize("version", [b'"x"', b"null", b"true", b"0.9", b"65536"])
def test_data_version_that_kafka_reads_as_0_is_accepted(version: bytes) -> None:
    data = V0.replace(b'"data_version":0', b'"data_version":' + version)
    assert decode_quorum_state(data) == decode_quorum_state(V0)


@given(st.binary(max_size=120) | st.text(max_size=60).map(lambda text: text.encode("utf-8")))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert isinstance(decode_clean_shutdown(data), CleanShutdown)
    for decode in (decode_partition_metadata, decode_meta_properties, decode_quorum_state):
        try:
            decode(data)
        except FormatError as error:
            assert str(error)


def test_captured_metadata_files_round_trip(capture_small: Path, legacy_small: Path) -> None:
    for path in capture_small.rglob("partition.metadata"):
        assert encode_partition_metadata(decode_partition_metadata(path.read_bytes())) == path.read_bytes()
    properties = (capture_small / "data/meta.properties").read_bytes()
    decoded = decode_meta_properties(properties)
    assert decoded == MetaProperties(1, 1, "Mz9XvQe1R0mU7bTq2LkP5w", "UsCu_Qd6HlJL_AROE7wUxg")
    assert encode_meta_properties(decoded, 1_795_250_574_000) == properties  # Sat Nov 21 08:42:54 UTC 2026
    old = (legacy_small / "data/1.1.1/4-compacted/meta.properties").read_bytes()
    assert decode_meta_properties(old) == MetaProperties(0, 0)
    shutdown = (capture_small / "data/.kafka_cleanshutdown").read_bytes()
    assert decode_clean_shutdown(shutdown) == CleanShutdown(103)
    assert encode_clean_shutdown(CleanShutdown(103)) == shutdown
    quorum = (capture_small / "data/__cluster_metadata-0/quorum-state").read_bytes()
    assert encode_quorum_state(decode_quorum_state(quorum)) == quorum
