"""Where state tables are kept when nobody says so: outside the working folder, and not where nobody looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.kafka.lifecycle import state_folder
from agents.kafka.lifecycle.state_folder import root_of
from agents.worker.app import data_folder
from schemas.config import Config
from schemas.config.load import parse_config
from schemas.config.server import JobSection
from schemas.errors import StoreError

STREAM = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "rides"
engine = "spatial"
source = "raw.rides"
[streams.privacy]
epsilon = 1.0
unit = "event"
[streams.time]
field = "at"
start = "now"
step = "15min"
[streams.domain]
kind = "box"
x = "lon"
y = "lat"
bounds = [0, 0, 1, 1]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def config(**job: str) -> Config:
    keys = "".join(f'{key} = "{value}"\n' for key, value in job.items())
    return parse_config(f"[job]\n{keys}{STREAM}")


def test_it_is_below_the_users_state_folder_and_one_for_each_cluster(home: Path) -> None:
    job = config().job
    assert root_of(job, "one") == home / "state" / "privstream" / "one"
    assert root_of(job, "one") != root_of(job, "other")
    assert not (home / "work").joinpath("privstream-data").exists()


def test_a_configured_one_wins_and_stays_relative_to_the_working_folder(home: Path) -> None:
    assert root_of(config(data_dir="here").job, "one") == home / "work" / "here"


def test_no_home_is_an_error_that_says_what_to_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*_: object, **__: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(state_folder, "user_state_path", no_home)
    with pytest.raises(StoreError, match="PRIVSTREAM_JOB__DATA_DIR"):
        root_of(JobSection(), "one")


def test_what_a_worker_makes_is_open_to_nobody_else(home: Path) -> None:
    """And doctor has nothing to say of it."""
    made = data_folder(config(data_dir=str(home / "new" / "data")))
    assert [folder.stat().st_mode & 0o777 for folder in (made, made.parent)] == [0o700, 0o700]
