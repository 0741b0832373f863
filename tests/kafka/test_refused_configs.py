"""Topic configurations with which a 4.3.1 node does not start: values for every property in LogConfig, judged by LogConfig and by kseg, and
a real start."""

from __future__ import annotations

import json
import os
import random

import pytest

from kseg.internal_topics.metadata.refused_configs import why_refused
from kseg.segment.terminal import shortened
from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java

pytestmark = pytest.mark.kafka
COUNT = int(os.environ.get("KSEG_TOPIC_CONFIGS", "4000"))
SEED = int(os.environ.get("KSEG_TOPIC_CONFIGS_SEED", "1"))
WORDS = (
    *(
        "",
        "x",
        "true",
        "FALSE",
        "yes",
        "compact",
        "delete",
        "compact,delete",
        "compact , delete",
        "delete,",
        ",",
        "none",
    ),
    *(
        "gzip",
        "GZIP",
        "uncompressed",
        "producer",
        "CreateTime",
        "createtime",
        "LogAppendTime",
        "*",
        "0:1,2:3",
        "0:1, 2:3",
        "0:",
        "*,1:2",
    ),
    *(
        "0.5",
        "1.5",
        "-0.1",
        "1e-1",
        ".5",
        "5.",
        "NaN",
        "Infinity",
        "-Infinity",
        "0.5d",
        "1f",
        "0x10",
        "9" * 5000,
        "0" * 5000 + "2000000",
        "0" * 5000 + "5",
        "1_000",
        "+5",
        "--5",
        "٣٣٣٣٣٣٣٣",
        "1 0",
    ),
)
NUMBERS = (0, 1, 4, 9, 14, 17, 22, 4096, 2**20, 2**31, 2**63, 131072)


def value(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(WORDS)
    return str(rng.choice((1, 1, -1)) * (rng.choice(NUMBERS) + rng.choice((-1, 0, 1))))


@pytest.mark.evidence("broker-start")
def test_topic_configurations_are_refused_as_by_log_config() -> None:
    require_kafka()
    rng = random.Random(SEED)
    known = _asked([])["names"]
    pairs = [(rng.choice((*known, "message.format.version")), value(rng)) for _ in range(COUNT)]
    messages = _asked(pairs)["messages"]
    assert sum(map(bool, messages)) > COUNT // 4
    different = [
        (*pair, message, ours)
        for pair, message in zip(pairs, messages, strict=True)
        if (ours := why_refused(*pair)) != _bounded(message)
    ]
    assert not different, "\n".join(map(str, different[:10]))


def _bounded(message: str) -> str:
    """The message with a long value shortened as kseg does it."""
    if not message.startswith("Invalid value "):
        return message
    value, _, rest = message.removeprefix("Invalid value ").partition(" for configuration ")
    return f"Invalid value {shortened(value)} for configuration {rest}"


def _asked(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    done = run_java("kseg.oracle.TopicConfigs", stdin=json.dumps(pairs))
    done.check_returncode()
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found
