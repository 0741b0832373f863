"""The real Kafka for the tests of this room, or one visible line that says why it is not asked."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kafka import jars
from tests.kafka.oracle import Oracle


def require_kafka() -> None:
    """Skip without Java or Maven; where CI is set, that is a failure: there the judge must be asked."""
    try:
        jars.check_tools()
    except jars.MissingTool as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """The judge; one Java process per test worker."""
    require_kafka()
    with Oracle(tmp_path_factory.mktemp("oracle")) as judge:
        yield judge
