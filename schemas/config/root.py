"""The whole file: the job, its cluster, its streams, and what the streams say against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from schemas.config.section import Section
from schemas.config.server import JobSection, Kafka
from schemas.config.stream import Stream
from schemas.errors import ConfigProblem
from schemas.topics import Topics


class Config(Section):
    """One job. Build it with `load_config`, which explains each refusal."""

    job: JobSection = JobSection()
    kafka: Kafka
    streams: tuple[Stream, ...] = Field(min_length=1)

    def stream(self, name: str) -> Stream:
        """The stream of this name. Raises: KeyError."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(name)

    def problems(self) -> Iterator[ConfigProblem]:
        """Names and topics that clash."""
        named = [Named(index, s.name, s.source, s.audit) for index, s in enumerate(self.streams)]
        yield from clashes(self.job.name, named)
        for name in sorted({stream.name for stream in self.streams} & set(self.job.retired)):
            yield ConfigProblem(
                "job.retired",
                f'"{name}" is a stream of this file, and what a retired stream needs to go on may be deleted',
                "take the name from job.retired, or the stream from the file",
            )


@dataclass(frozen=True, slots=True)
class Named:
    """The names of one stream, as far as they could be read."""

    index: int
    name: str | None
    source: str | None
    audit: str | None


def _folded(topic: str) -> str:
    """Kafka takes '.' and '_' for the same in its metric names and refuses topics that differ only there."""
    return topic.replace(".", "_")


def _is_private(topic: str, job: str) -> bool:
    return topic.startswith((f"{job}.", f"{job}_")) or topic == Topics(job, 1).changelog


def clashes(job: str | None, streams: Sequence[Named]) -> Iterator[ConfigProblem]:
    """Duplicate names, and topics with two meanings. Several streams may share a source: their budgets add up."""
    first: dict[str, int] = {}
    outputs: dict[str, str] = {}
    for stream in streams:
        if stream.name is None:
            continue
        if (other := first.setdefault(_folded(stream.name), stream.index)) != stream.index:
            yield ConfigProblem(
                f"streams[{stream.index}].name",
                f'"{stream.name}" is already the name of streams[{other}]',
                "give each stream a name of its own",
            )
        if stream.name == job:
            yield ConfigProblem(
                f"streams[{stream.index}].name",
                f'"{job}" is the name of the job, whose private topics begin with it',
                "rename the stream, or set name in [job]",
            )
        outputs.update({_folded(topic): topic for topic in Topics.written(stream.name)})
    sources = {_folded(stream.source): stream for stream in reversed(streams) if stream.source is not None}
    for stream in streams:
        for key, topic in (("source", stream.source), ("audit", stream.audit)):
            if topic is None:
                continue
            where = f"streams[{stream.index}].{key}"
            if _folded(topic) in outputs:
                yield ConfigProblem(
                    where, f'"{topic}" is an output topic of this job', "read another topic, or rename the stream"
                )
            elif job is not None and _is_private(topic, job):
                yield ConfigProblem(
                    where,
                    f'"{topic}" is named like a private topic of job "{job}"',
                    "read another topic, or set another name in [job]",
                )
            if key == "audit" and (source := sources.get(_folded(topic))) is not None:
                yield ConfigProblem(
                    where,
                    f'"{topic}" is the source of streams[{source.index}]',
                    "write the held-out events to a topic of their own, or remove audit",
                )
