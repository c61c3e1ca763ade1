"""What the demo says to type next can be typed: in a clone, and where a wheel is installed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agents.cli.demo import next_lines

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("in_clone", [True, False])
def test_each_file_that_is_named_is_there(in_clone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an installed wheel named `.venv` and `examples` of a folder that had neither."""
    if in_clone:
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        (tmp_path / ".venv" / "bin").mkdir(parents=True)
        for name in ("python", "privstream"):
            (tmp_path / ".venv" / "bin" / name).touch()
    monkeypatch.chdir(tmp_path)
    typed = [line for line in next_lines("127.0.0.1:9092", ["taxi"]) if line.startswith("  ") and "#" not in line]
    assert len(typed) == 3
    named = [word for line in typed for word in shlex.split(line) if "/" in word]
    assert len(named) >= 5
    assert [word for word in named if not Path(word).exists()] == []
    assert all(Path(word).is_absolute() != in_clone for word in named)
