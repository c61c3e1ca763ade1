"""Java starts with what an earlier start left, and as ever where there is nothing, or nothing that it can use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agents.local.broker.embedded import _JVM, KEPT, QuickStart
from agents.local.broker.jars import jars, java_binary


@pytest.fixture
def class_path(tmp_path: Path) -> str:
    """Kafka's jars in a folder where no broker has been started."""
    linked = []
    for jar in map(Path, jars().split(os.pathsep)):
        link = tmp_path / jar.name
        link.symlink_to(jar)
        linked.append(str(link))
    return os.pathsep.join(linked)


def java(class_path: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A short program of Kafka's."""
    command = [str(java_binary()), *_JVM, *options, "-cp", class_path, "kafka.tools.StorageTool", "random-uuid"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_java_uses_what_it_left_and_needs_none_of_it(class_path: str, tmp_path: Path) -> None:
    quick = QuickStart(java_binary(), class_path, _JVM)
    assert quick.options == ()
    with quick.made() as recording:
        assert recording
        with QuickStart(java_binary(), class_path, _JVM).made() as beside:
            assert beside == (), "another process is making it"
        assert java(class_path, *recording).returncode == 0
    [kept] = tmp_path.glob("*start-*.aot*")
    # This mode refuses to start where the cache cannot be used.
    assert java(class_path, *quick.options, "-XX:AOTMode=on").returncode == 0
    with quick.made() as recording:
        assert recording == ()
    kept.write_bytes(b"damaged")
    assert java(class_path, *quick.options, "-XX:AOTMode=on").returncode != 0
    found = java(class_path, *quick.options)
    assert (found.returncode, found.stderr) == (0, "")
    assert len(found.stdout.split()) == 1  # the id, and no complaint


def test_each_set_of_options_has_its_own(class_path: str) -> None:
    quick, other = (QuickStart(java_binary(), class_path, options) for options in (_JVM, (*_JVM, "-Xmx1g")))
    with quick.made() as recording:
        Path(recording[0].partition("=")[2]).write_bytes(b"made")
    assert quick.options
    assert not other.options


def test_the_youngest_are_kept(class_path: str, tmp_path: Path) -> None:
    for age in range(KEPT + 2):
        old = tmp_path / f"start-{age}.aot"
        old.touch()
        os.utime(old, ns=(10**9 - age, 10**9 - age))
    with QuickStart(java_binary(), class_path, _JVM).made() as recording:
        Path(recording[0].partition("=")[2]).write_bytes(b"made")
    assert len(kept := {path.name for path in tmp_path.glob("start-*.aot")}) == KEPT
    assert {f"start-{age}.aot" for age in range(KEPT - 1)} < kept


def test_what_could_not_be_made_is_not_tried_again(class_path: str) -> None:
    quick = QuickStart(java_binary(), class_path, _JVM)
    with quick.made() as recording:
        assert recording
    with quick.made() as recording:
        assert recording == ()
    assert quick.options == ()


def test_a_folder_that_cannot_be_written_to_stops_nobody(class_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("fcntl.flock", refuse)
    with QuickStart(java_binary(), class_path, _JVM).made() as recording:
        assert recording == ()
