"""A file as a stream reads it.

It must have the columns, else every row would be a dead letter. Where it holds texts alone, they are read as what the
stream's fields can be.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agents.local.offline.rows.files import FileError, RowFile, open_rows
from agents.protocol.formats.build import ROWS
from agents.protocol.formats.reader import paths_of
from engines.core.contract import Domain, ScalarKind
from engines.core.registry import build_domain
from schemas.config.timing import NUMERIC_FORMATS

if TYPE_CHECKING:
    from schemas.config import Stream

TEXT: frozenset[ScalarKind] = frozenset(("text",))
NUMBER: frozenset[ScalarKind] = frozenset(("number",))


def rows_for(path: Path | str, stream: Stream, *, user_field: str | None = None, timed: bool = True) -> RowFile:
    """Open a file, and hold its columns against the fields that a stream's configuration names, before anything is
    written.

    Args:
        user_field: rows are keyed by this field instead of the stream's own.
        timed: False where steps do not follow from the rows' times.
    Raises: FileError where it cannot be opened, or with all columns that are not there. Column names are the file's,
        never what is in them.
    """
    file = open_rows(path)
    columns = file.columns()
    if not columns:  # rows that name their own fields; a file without a single line, which replays as no rows
        return file
    user = user_field or stream.privacy.user
    domain = build_domain(stream)
    kinds = _kinds(stream, domain)
    read = {*kinds, stream.domain.trip_field}
    # Some fields have a role in synthetic records only.
    wanted = {field: f"[streams.domain] {key}" for key, field in stream.domain.roles() if field in read}
    if timed:
        wanted[stream.time.field] = "[streams.time] field"
    if user is not None:
        wanted[user] = "--user-field" if user_field else "[streams.privacy] user"
    lacking = [
        _sentence(field, key, columns)
        for field, key in wanted.items()
        if field not in columns and paths_of(ROWS, [field])[0].parts[0] not in columns
    ]
    if lacking:
        raise FileError(
            f"{file.path}: stream {stream.name} reads columns that the file does not have: {'; '.join(lacking)}. "
            "Fix: name the file's own columns in the configuration, or add them to the file (an empty cell is null)."
        )
    ids = {name: TEXT for name in (user, stream.domain.trip_field) if name is not None}
    time = {stream.time.field: NUMBER if stream.time.format in NUMERIC_FORMATS else TEXT} if timed else {}
    return replace(file, kinds={**ids, **time, **kinds})


def _kinds(stream: Stream, domain: Domain) -> dict[str, frozenset[ScalarKind]]:
    """What the values of each field of an event can be."""
    found = {
        **dict.fromkeys(domain.number_fields, NUMBER),
        **dict.fromkeys(domain.text_fields, TEXT),
        **domain.value_fields,
    }
    if stream.domain.operation_field is not None:
        found[stream.domain.operation_field] = TEXT
    return found


def _sentence(field: str, key: str, columns: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(field, columns, n=1)
    meant = f"; is it {close[0]}?" if close else ""
    return f"{field} ({key}){meant}"
