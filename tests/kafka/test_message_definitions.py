"""The schemas in the repository equal those of the published jars."""

from __future__ import annotations

import pytest

from tests.kafka import config_names, message_definitions
from tests.kafka.conftest import require_kafka

pytestmark = pytest.mark.kafka


def test_message_schemas_equal_those_of_the_jars() -> None:
    require_kafka()
    reported = "stale: run python -m tests.kafka.message_definitions"
    assert message_definitions.TARGET.read_text(encoding="utf-8") == message_definitions.as_text(), reported


def test_configuration_names_equal_those_of_the_jars() -> None:
    require_kafka()
    reported = "stale: run python -m tests.kafka.config_names"
    assert config_names.TARGET.read_text(encoding="utf-8") == config_names.as_text(), reported
