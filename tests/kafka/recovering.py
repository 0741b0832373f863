"""Run `kseg recover` as a command on the data directory of a killed broker, and find the recovery messages in a broker's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kafka.broker import Broker
from tests.kafka.killed import SETTINGS, TOPICS
from tests.support.forked_programs import run_kseg

# Lines in a broker's log that say that it had to check a log again.
RECOVERED = (
    "Recovering unflushed segment",
    "Corruption found",
    "Found invalid",
    "rebuilding index",
    "Could not find",
)


def recover(*arguments: str | Path, status: int = 0) -> list[dict[str, Any]]:
    """Run `kseg recover --json …`, which must end with `status`; returns its rows."""
    done = run_kseg("recover", "--json", *SETTINGS, *arguments)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def recovered_lines(broker: Broker) -> list[str]:
    """The lines about recovery in the broker's log. The metadata log is always read from the start."""
    lines = broker.log_text().splitlines()
    return [line for line in lines if any(w in line for w in RECOVERED) and "__cluster_metadata" not in line]


# --- damage as a power cut leaves it, beside what a kill leaves


def damage(data: Path) -> None:
    """Damage the end of each codec's log in a different way, except the uncompressed one."""
    cut, zeros, flip, garbage = (max((data / f"{topic}-0").glob("*.log")) for topic in TOPICS[1:])
    cut.write_bytes(cut.read_bytes()[:-3])
    zeros.write_bytes(zeros.read_bytes() + bytes(4096))
    content = bytearray(flip.read_bytes())
    content[-20] ^= 0x10
    flip.write_bytes(content)
    garbage.write_bytes(garbage.read_bytes() + bytes(range(7, 207)))
