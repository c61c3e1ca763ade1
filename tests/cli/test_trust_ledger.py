"""`privstream run --trust-ledger`: what a person vouches for is named exactly, or refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.cli.run import trusted_steps
from schemas.config import Config
from schemas.errors import PrivstreamError
from tests.kafka.support import job_config, stream_table


def of_streams(folder: Path, *names: str, witness: str | None = "/witness") -> Config:
    more = {} if witness is None else {"witness": witness}
    return job_config("localhost:1", folder, streams=[stream_table(name) for name in names], **more)


def test_streams_and_steps(tmp_path: Path) -> None:
    both = of_streams(tmp_path, "a", "b")
    assert trusted_steps(both, []) == {}
    assert trusted_steps(both, ["b=7", "a=0"]) == {"a": 0, "b": 7}
    assert trusted_steps(of_streams(tmp_path, "a"), ["7"]) == {"a": 7}


@pytest.mark.parametrize("given", [["7"], ["c=7"], ["a"], ["a="], ["a=-1"], ["a=x"], ["a=1", "a=2"]])
def test_what_names_no_stream_and_step_is_refused(tmp_path: Path, given: list[str]) -> None:
    with pytest.raises(PrivstreamError, match="write STREAM=STEP"):
        trusted_steps(of_streams(tmp_path, "a", "b"), given)


def test_without_a_witness_there_is_nothing_to_trust(tmp_path: Path) -> None:
    with pytest.raises(PrivstreamError, match="nothing to do"):
        trusted_steps(of_streams(tmp_path, "a", witness=None), ["a=1"])
