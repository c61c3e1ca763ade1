"""Protobuf schemas of a registry are compiled without a word, and what this machine lacks is not laid to a schema."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest

from agents.protocol.formats.contract import SchemaBook, SchemaRef, SchemaText, UnreadableError
from agents.protocol.formats.protobuf import ProtobufEncoding
from schemas.errors import StoreError

CANARY = "c4n4ry_of_a_schema"
GOOD = f'syntax = "proto3"; message A {{ string {CANARY} = 1; }}'
REF = SchemaRef(1)
UNUSABLE: Mapping[str, SchemaText] = {
    "cut off": SchemaText("PROTOBUF", f"message {CANARY} {{"),
    "an import of nothing": SchemaText("PROTOBUF", f'import "{CANARY}"; message A {{ {CANARY}.B b = 1; }}'),
    "a file that is a folder": SchemaText("PROTOBUF", GOOD, (("a", GOOD), ("a/b", GOOD))),
    "a folder": SchemaText("PROTOBUF", GOOD, (("a/b", GOOD), ("a", GOOD))),
    "no name": SchemaText("PROTOBUF", GOOD, (("", GOOD),)),
    "a name that is too long": SchemaText("PROTOBUF", GOOD, (("n" * 300, GOOD),)),
    "a name that is none": SchemaText("PROTOBUF", GOOD, (("n\0", GOOD),)),
    "another place": SchemaText("PROTOBUF", GOOD, (("../n", GOOD),)),
}


def made(text: SchemaText) -> object:
    book = SchemaBook()
    book.put(REF, text)
    return book.reader(REF, ProtobufEncoding(book).kind)


def test_one_that_is_good_is_compiled(capfd: pytest.CaptureFixture[str]) -> None:
    code = ("grpc_tools/protoc.py", f"raise SystemExit('{CANARY}')")
    assert made(SchemaText("PROTOBUF", "message A { optional string b = 1; }", (code,))) is not None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
def test_one_that_is_not_is_unusable_and_repeated_nowhere(text: SchemaText, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnreadableError, match="UNUSABLE_SCHEMA"):
        made(text)
    assert capfd.readouterr() == ("", "")


def test_a_disk_without_room_loses_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records would be refused as UNUSABLE_SCHEMA, for good."""
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(StoreError, match=r"cannot be compiled in the folder of TMPDIR: "):
        made(SchemaText("PROTOBUF", GOOD))


ENDS = {
    **{name: f"import os, signal; os.kill(os.getpid(), signal.{name})" for name in ("SIGKILL", "SIGTERM")},
    # As of a program in the foreground: a shell lets those in the background ignore it.
    "SIGINT": "from signal import *; signal(SIGINT, default_int_handler); raise_signal(SIGINT)",
    "no memory": "raise MemoryError",
    "no answer": "",
}
"""By what a compiler ends that has not judged: whoever stops a worker may signal all of its processes."""


@pytest.mark.parametrize("script", ENDS.values(), ids=ENDS)
def test_a_compiler_that_was_ended_says_nothing_of_the_schema(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(StoreError, match="No such file"):
        made(SchemaText("PROTOBUF", GOOD))
    monkeypatch.undo()
    real = subprocess.run
    monkeypatch.setattr("subprocess.run", lambda command, **how: real([command[0], "-c", script], **how))
    with pytest.raises(StoreError):
        made(SchemaText("PROTOBUF", GOOD))
