"""The witness of a stream: its last answered step, noted outside of the cluster before anything of that step is public.

A cluster can be put back to an earlier moment, whole and without a contradiction in it: its release log and its ledger
then know nothing of later steps, and events that come again would be answered again. Whoever publishes therefore notes
a step's number and digest in another place first, and compares that place with the cluster whenever it begins.

Life of a step at its publisher, every arrow an effect after which a crash may come:

    candidate read back --write the mark--> witnessed --first record sent--> shown --commit--> public

What an opening publisher finds, after it has fenced its predecessors and read the ledger to its end (last step `n`):

| mark            | ledger at the mark's step | release log at it | then |
|-----------------|---------------------------|-------------------|------|
| none            | no step is public         |                   | a new stream: go on |
| none            | n is the last             |                   | the ledger is taken on its word, see below |
| of step s = n   | the same digest           |                   | go on |
| of step s < n   | the same digest           |                   | steps were published past it: as none |
| of step s <= n  | another digest            |                   | stop |
| of step s > n   |                           | the same digest   | a crash between the mark and the commit: go on |
| of step s > n   |                           | another digest    | stop |
| of step s > n   |                           | no such step      | stop: the cluster was put back |

A ledger is taken on its word where no witness is configured: workers then have their own folders, and a worker that is
new, or had not served the stream for a while, cannot know better. Where one is configured it is there to know better,
so a person must say that the ledger is whole, and up to which step.

Marks only go forward: who writes one names the mark that it replaces, and the store refuses where another one is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson

from schemas.errors import WitnessError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """The last step of a stream that its witness has seen.

    Attributes:
        step: the last step that may be public. chain: the digest of all public bytes up to it, see `link`.
        since: what was public up to this step was taken on the ledger's word; -1: nothing was.
    """

    stream: str
    step: int
    chain: str
    since: int = -1

    def encode(self) -> bytes:
        """Return the mark as JSON. Nothing in it is private: the digest is published with the step."""
        words = {"version": VERSION, "stream": self.stream, "step": self.step, "chain": self.chain, "since": self.since}
        return orjson.dumps(words)

    @staticmethod
    def decode(data: bytes, *, stream: str, place: str) -> Mark:
        """Raises: WitnessError for what is no mark of this stream, naming the place."""
        try:
            words = orjson.loads(data)
            if words.pop("version") == VERSION:
                mark = Mark(**words)
                if mark.stream == stream and type(mark.step) is type(mark.since) is int and type(mark.chain) is str:
                    return mark
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
            pass
        raise WitnessError(
            f"stream {stream}: what stands at {place} in its place is no mark of it: another program or a later "
            "version wrote there, or it is damaged. What to do: find out which; give this job a place of its own"
        )


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms under which a publisher believes the cluster.

    Attributes:
        place: where the witness is, for messages.
        configured: whether `[job] witness` names it, for all workers; else each has its own.
        trusted: the step that a person gave with `--trust-ledger`, None: nobody did.
    """

    place: str
    configured: bool
    trusted: int | None = None


def judge(
    stream: str, mark: Mark | None, terms: Terms, *, last: int, last_chain: str, ledger: str | None, logged: str | None
) -> Mark | None:
    """Return the mark that must stand before anything more is published; the given one where it may stay.

    Args:
        last: last step of the public ledger, -1 before any. last_chain: its digest.
        ledger: digest of the mark's step in the ledger, None where it does not have the step.
        logged: the same of the release log; asked only for a step behind the ledger's last one.
    Raises: WitnessError: the stream must not go on.
    """
    if mark is not None:
        what, found = ("release log", logged) if mark.step > last else ("public ledger", ledger)
        if found is None:
            raise WitnessError(
                f"stream {stream}: its witness ({terms.place}) says that step {mark.step} was answered, and the "
                f"cluster knows its steps up to {last} only: topics were put back to an earlier moment, or records "
                "were lost. Steps would be answered a second time. What to do: put back all topics of the job as they "
                f"were at step {mark.step} or later, and restart the workers; if nobody has them, start the stream "
                "anew under another name: what was released counts for the same people (explain --earlier)"
            )
        if found != mark.chain:
            raise WitnessError(
                f"stream {stream}: the {what} has another answer of step {mark.step} than the one that its witness "
                f"({terms.place}) saw: the cluster was put back and went on, or another job of this name has the same "
                "witness. What to do: keep all topics and the witness as they are, stop every worker, and find out "
                "which; to go on, start the stream anew under another name"
            )
        if mark.step >= last:
            return mark
    if last < 0:
        return None
    if terms.configured and terms.trusted != last:
        knows = "has never seen this stream" if mark is None else f"ends at step {mark.step}"
        given = "" if terms.trusted is None else f", and not {terms.trusted}"
        raise WitnessError(
            f"stream {stream}: its witness ({terms.place}) {knows}, and the public ledger ends at step {last}{given}: "
            "nothing tells whether later steps were answered and lost. What to do: look for a step that came after "
            f"{last} (readers, exports, logs). If there is none, stop every worker and start one with --trust-ledger "
            f"{stream}={last}; if there is one, put back the topics, or start the stream anew under another name"
        )
    return Mark(stream, last, last_chain, since=last)


def advance(mark: Mark | None, *, stream: str, step: int, chain: str) -> Mark | None:
    """Return the mark to write before `step` is published; None where the one that stands covers it, as where a crash
    fell between a mark and its commit: `judge` has found it on the release log, whose digests are a chain.
    """
    if mark is None:
        return Mark(stream, step, chain)
    return replace(mark, step=step, chain=chain) if mark.step < step else None
