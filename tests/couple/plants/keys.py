"""Planted faults of engine `keys`: what tells of keys that are not listed, and what costs more than is claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from agents.protocol.ingest.pair_bounds import PairBounds
from engines.core.noise import listing
from engines.core.noise.listing import Listed
from engines.keys import engine as keys
from engines.keys import selection
from engines.keys.domain import KeysDomain
from engines.keys.engine import Keys, KeysConfig
from engines.keys.selection import KeySelection
from engines.keys.table import PeriodTable, _hashes
from engines.keys.values import BoundedValue
from schemas.blocks import Folded
from schemas.config.engines.keys import PUBLIC
from tests.couple.plants import Fault, edit, edited, inside, peeked, plants, together, unasked

_FEW = {"options": {"max_keys": 8}}
_VALUE = {"domain": {"value": {"field": "price", "limits": [-1.0, 5.0]}}}
_EVENTS = {"options": {"max_per_key": 3}}
_UNION = "(selection.contributions * tests)"


def _unasked(owner: Any, name: str, old: str, new: str) -> AbstractContextManager[Any]:
    """A fault in what the engine says it costs."""
    return together(unasked(), edited(owner, name, old, new))


@contextmanager
def _only_new() -> Iterator[None]:
    """Only keys to which somebody new came are tested, and shown."""
    fresh: set[bytes] = set()

    def watched(added: Any, table: PeriodTable, events: Any, **limits: int) -> PeriodTable:
        fresh.clear()
        fresh.update(key.tobytes() for key in events.keys[:, : table.hash.words])
        after: PeriodTable = added(table, events, **limits)
        return after

    original = listing.listing_mechanism

    def tested(table: Any, law: Any, source: Any) -> Any:
        listed, after = original(table, law, source)
        shown = [at for at, key in enumerate(listed.keys) if key.tobytes() in fresh]
        return Listed(listed.keys[shown], listed.totals[:, shown], listed.found[shown]), after

    with inside(PeriodTable, "added", watched), patch.object(keys, "listing_mechanism", tested):
        yield


@contextmanager
def _first_come() -> Iterator[None]:
    """A full table drops the keys that come last."""

    def dropping(added: Any, table: PeriodTable, events: Folded, *, least: int, most: int) -> PeriodTable:
        there, free = table.by_hash(), most - table.held
        known = np.array(
            [key in there for key in _hashes(table.hash, events.keys[:, : table.hash.words]).ids()], np.bool_
        )
        kept = known | (np.cumsum(~known) <= free)
        after: PeriodTable = added(table, Folded(events.keys[kept], events.counts[kept]), least=least, most=most)
        return after

    with inside(PeriodTable, "added", dropping):
        yield


def _true_sums(listed: Listed, sums: dict[bytes, int], law: Any) -> Listed:
    """How many people a key has is noisy; what they brought is not."""
    totals = listed.totals.copy()
    totals[1] = [law.counter.resolution * sums[key.tobytes()] for key in listed.keys]
    return Listed(listed.keys, totals, listed.found)


@contextmanager
def _told(change: Callable[[Listed, dict[bytes, int], Any], Listed], at: int = 0) -> Iterator[None]:
    """What a test lets out is changed by somebody who knows how many people have each key, or another of its totals."""
    original = listing.listing_mechanism

    def told(table: Any, law: Any, source: Any) -> Any:
        listed, after = original(table, law, source)
        raw = peeked(after)
        true = {key.tobytes(): total for key, total in zip(raw.keys, raw.totals[at].tolist(), strict=True)}
        return change(listed, true, law), after

    with patch.object(keys, "listing_mechanism", told):
        yield


def _true_counts(listed: Listed, people: dict[bytes, int], law: Any) -> Listed:
    """Which keys are listed is noisy; how many people they have is not."""
    totals = listed.totals.copy()
    totals[0] = [law.counter.resolution * people[key.tobytes()] for key in listed.keys]
    return Listed(listed.keys, totals, listed.found)


def _only_visited(listed: Listed, people: dict[bytes, int], _: Any) -> Listed:
    """Of a public list only keys that somebody came to are released."""
    shown = [at for at, key in enumerate(listed.keys) if people[key.tobytes()] > 0]
    return Listed(listed.keys[shown], listed.totals[:, shown], listed.found[shown])


_PUBLIC = plants(
    "keys",
    PUBLIC,
    {
        "only keys that somebody came to are released": Fault(partial(_told, _only_visited), shown_by=7),
        "noise for one key of a user": partial(
            _unasked, KeySelection, "squares", "return self.contributions * self.together**2", "return 1"
        ),
        "a table that begins without keys": edit(
            KeysConfig,
            "first_table",
            "PeriodTable.of_public(hashed, self.domain.public, len(self.selection.sums))",
            "PeriodTable.empty(hashed)",
        ),
        "counts of public keys without noise": partial(_told, _true_counts),
    },
)
PLANTS = _PUBLIC + plants(
    "keys",
    "default",
    {
        "no union over the tests of a period": edit(selection, "_thresholds", _UNION, "selection.contributions"),
        "no union over the keys of a user": Fault(edit(selection, "_thresholds", _UNION, "tests"), shown_by=0),
        "a threshold for fewer people than are asked for": Fault(
            edit(selection, "_thresholds", "selection.least_count - 1 +", "selection.least_count - 2 +"), shown_by=0
        ),
        "all of delta to the noise": Fault(
            partial(_unasked, KeySelection, "noise_delta", " * (1 - self.share)", ""), shown_by=3
        ),
        "noise for one key of a user": partial(
            _unasked, KeySelection, "squares", "return self.contributions * self.together**2", "return 1"
        ),
        "noise by the fourth root of a user's keys": partial(
            _unasked,
            KeySelection,
            "_counter",
            "of_user / self.squares",
            "of_user / Fraction(self.squares**0.5)",
        ),
        "half the noise of every test": edit(
            selection,
            "_node_noise",
            "sigma_squared_of(longest * square, mu_squared)",
            "sigma_squared_of(longest * square, mu_squared) / 4",
        ),
        "keys of fewer people are tested, too": edit(PeriodTable, "added", "whole >= least", "whole >= 1"),
        "a key of just enough people is not tested": edit(PeriodTable, "added", "whole >= least", "whole > least"),
        "people who come to a key before enough have it are forgotten": Fault(
            edit(PeriodTable, "added", "whole[begin:end][known] += before.people", "pass"), shown_by=3
        ),
        "noise begins with a key's first event": edit(
            listing, "_tested", "[*[had] * (test - 1)", "[*[every] * (test - 1)"
        ),
        "one noise for all tests of a key": edit(
            listing, "_tested", "counter.increment(nodes, moved[:index, begin:].T)", "0"
        ),
        "only keys with new events are tested": _only_new,
        "a full table drops the keys that come last": Fault(_first_come, variant=_FEW, shown_by=3),
        "how many keys are tested, in the ledger": edit(
            Keys, "step", '{"listed": len(added), "test": test}', '{"tested": len(peeked(table).found)}', peeked=peeked
        ),
        "how many keys there are, in the ledger": Fault(
            edit(Keys, "step", '{"listed": len(added), "test": test}', '{"keys": peeked(table).held}', peeked=peeked),
            shown_by=3,
        ),
        "counts of listed keys without noise": partial(_told, _true_counts),
        "noise of a sum for the smallest value": Fault(
            partial(_unasked, KeySelection, "sums", " / LEVELS**2", ""), variant=_VALUE
        ),
        "all of the budget for counts, and for values too": Fault(
            partial(_unasked, KeySelection, "counter", "(1 - self.value_share) * self.mu_squared", "self.mu_squared"),
            variant=_VALUE,
        ),
        "values beyond their limits": Fault(
            edit(BoundedValue, "levels", "np.clip(levels, -LEVELS, LEVELS)", "2 * levels"), variant=_VALUE
        ),
        "sums without noise": Fault(partial(_told, _true_sums, at=1), variant=_VALUE),
        "another value makes another pair": Fault(
            edit(KeysDomain, "pairs", "keys[:, : self.key_words]", "keys"), variant=_VALUE, shown_by=3
        ),
        "values that come before enough people have a key are forgotten": Fault(
            edit(PeriodTable, "added", "brought[begin:end][known] += before.sums", "pass"), variant=_VALUE
        ),
        "noise for one event of a user with a key": Fault(
            partial(_unasked, KeySelection, "squares", "self.together**2", "1"), variant=_EVENTS
        ),
        "noise by the root of a user's events with a key": Fault(
            partial(_unasked, KeySelection, "squares", "self.together**2", "self.together"), variant=_EVENTS
        ),
        "a threshold for one event of a user": Fault(
            edit(selection, "_thresholds", "- 1 + selection.together", ""), variant=_EVENTS, shown_by=0
        ),
        "one event more of a pair": Fault(
            edit(PairBounds, "_admitted", "if taken[pair] >= self.spec.pairs:", "if taken[pair] > self.spec.pairs:"),
            variant=_EVENTS,
            dearest=True,
        ),
        "keys that nobody listed are taken for public": edit(
            KeySelection, "law", "None if self.public else self.thresholds[test - 1]", "None"
        ),
    },
)
