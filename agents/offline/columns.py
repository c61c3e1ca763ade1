"""A file with columns must have those that a stream reads: otherwise every row of it would be a dead letter."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from agents.offline.files import FileError, RowFile
from engines.registry import build_domain

if TYPE_CHECKING:
    from schemas.config import Stream


def check_columns(file: RowFile, stream: Stream, *, user_field: str | None = None, timed: bool = True) -> None:
    """Hold a file's columns against the fields that a stream's configuration names, before anything is written.

    Args:
        user_field: rows are keyed by this field instead of the stream's own.
        timed: False where steps do not follow from the rows' times.
    Raises: FileError with all columns that are not there. Column names are the file's, never what is in them.
    """
    columns = file.columns()
    if not columns:  # rows that name their own fields; a file without a single line, which replays as no rows
        return
    user = user_field or stream.privacy.user
    domain = build_domain(stream)
    fields = (*domain.number_fields, *domain.text_fields, *domain.value_fields)
    read = {*fields, stream.domain.operation_field, stream.domain.trip_field}
    # Some fields have a role in synthetic records only.
    wanted = {field: f"[streams.domain] {key}" for key, field in stream.domain.roles() if field in read}
    if timed:
        wanted[stream.time.field] = "[streams.time] field"
    if user is not None:
        wanted[user] = "--user-field" if user_field else "[streams.privacy] user"
    lacking = [_sentence(field, key, columns) for field, key in wanted.items() if field not in columns]
    if lacking:
        raise FileError(
            f"{file.path}: stream {stream.name} reads columns that the file does not have: {'; '.join(lacking)}. "
            "Fix: name the file's own columns in the configuration, or add them to the file (an empty cell is null)."
        )


def _sentence(field: str, key: str, columns: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(field, columns, n=1)
    meant = f", which has {close[0]}" if close else ""
    return f"{field} ({key}){meant}"
