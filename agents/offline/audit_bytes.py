"""What an auditor reads off the public bytes of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from engines.auditor.features import Features, of_public
from schemas.releases import unframe_records


def number_measured(payload: bytes) -> int:
    """Measurements among framed public records."""
    return sum(record.channel == "measurements" for record in unframe_records(payload))


def of_bytes(payload: bytes, ledger: bytes) -> tuple[Features, list[Mapping[str, Any]]]:
    """Features of all public records of one step, and its measurements."""
    records = unframe_records(payload)
    measurements = [orjson.loads(each.value or b"{}") for each in records if each.channel == "measurements"]
    synthetic = [each for each in records if each.channel == "synthetic"]
    features = of_public(
        removed=[each.key.decode() for each in synthetic if each.value is None],
        added=[(each.key.decode(), orjson.loads(each.value)) for each in synthetic if each.value is not None],
        measurements=measurements,
        words=orjson.loads(ledger),
    )
    return features, measurements
