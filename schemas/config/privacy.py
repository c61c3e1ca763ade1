"""`[streams.privacy]`: who is protected, and how much all releases of the stream together may cost.

Units: epsilon and delta are those of one user (or one event) over the whole stream, or over one period where `per`
is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from schemas.config.values import ExactDecimal, FieldName, Number, Section, StepLength, Whole, must
from schemas.errors import ConfigProblem
from schemas.guarantee import Unit, format_percent, max_posterior
from schemas.steps import min_length_us

SURPLUS_SHARE = Fraction(1, 10)
"""Share of the budget that counts what the bounds refuse."""
LARGEST_EPSILON = 1000  # far beyond any guarantee; above it, it is a slip of the pen
LARGEST_DELTA = 0.01
UNUSUAL_EPSILON = 10  # above it somebody is told what is left of the promise
UNUSUAL_DELTA = 1e-5
"""Above it somebody is told to compare delta with the number of users, which no configuration says."""


Epsilon = Annotated[
    ExactDecimal,
    must(lambda value: value > 0, "must be greater than 0", "write a positive number; 1.0 is a usual choice"),
    must(
        lambda value: value <= LARGEST_EPSILON,
        f"is above {LARGEST_EPSILON}, which protects nobody",
        "write a small positive number; 1.0 is a usual choice",
    ),
]
Delta = Annotated[
    Number,
    must(
        lambda value: 0.0 <= value < 1.0,
        "must be at least 0 and below 1",
        "write 0.0, or a probability far below one in your users",
    ),
]


class Privacy(Section):
    """`[streams.privacy]`."""

    header: ClassVar[str] = "[streams.privacy]"
    unpinned: ClassVar[frozenset[str]] = frozenset({"user_key_file"})

    epsilon: Epsilon = Field(examples=[1.0])
    """What all releases together may tell of one unit, at most; exactly the decimal number in the file."""
    delta: Delta = Field(0.0, examples=[0.0])
    """0 for pure epsilon-DP; engines and modes with Gaussian noise need one far below 1 in the number of users."""
    unit: Unit = Field("user", examples=["user"])
    """Whom epsilon protects: all that one `user` contributes, a single `event`, or where a member was (`replace`)."""
    user: FieldName | None = Field(None, examples=["user_id"])
    """Field of the raw event that holds the user's id."""
    max_contributions: Whole | None = Field(None, ge=1, le=1_000_000, examples=[2])
    """Events of one user that count, over the stream or each period; a `ttl` insert counts `Stream.insert_charge`."""
    max_per_step: Whole | None = Field(None, ge=1, le=1_000_000, examples=[1])
    """Events of one user that count in one step (trips that begin in it); absent: `max_contributions` alone bounds."""
    per: StepLength | None = Field(None, examples=["30d"])
    """Length of the aligned periods after which the bound renews, in whole steps, `"30 days"` with steps of
    the calendar; absent: never."""
    surplus: Whole | None = Field(None, ge=1, le=1000, examples=[5])
    """Count so many times `max_contributions` further events of each user, for a tenth of epsilon, and scale synthetic
    data up by what the bound drops; absent: synthetic data is of the events within the bound."""
    user_key_file: Path | None = Field(None, examples=["/run/secrets/user-key"])
    """File with the secret key of the hash of user ids; absent: the environment's `PRIVSTREAM_USER_KEY_FILE`."""

    @property
    def epsilon_fraction(self) -> Fraction:
        """`epsilon` as an exact fraction: 0.1 is 1/10."""
        return Fraction(self.epsilon)

    @property
    def epsilon_warning(self) -> str | None:
        """A sentence where epsilon promises next to nothing; None elsewhere."""
        if self.epsilon <= UNUSUAL_EPSILON:
            return None
        sure = format_percent(max_posterior(float(self.epsilon)))
        return f"epsilon above {UNUSUAL_EPSILON} promises little: from an even chance somebody may get {sure} sure."

    @property
    def delta_warning(self) -> str | None:
        """A sentence where delta is large for what is known of the users, which is nothing; None elsewhere."""
        if self.delta <= UNUSUAL_DELTA:
            return None
        return (
            f"delta = {self.delta:g} is above {UNUSUAL_DELTA:g}: it must be far below one in your users, since among N "
            "of them N times delta may be unprotected altogether. It is too much from "
            f"{round(1 / self.delta):,} users on."
        )

    @property
    def per_us(self) -> int | None:
        """Length of a period in microseconds, or None where the bound never renews. Of the calendar: what it has at
        least, so that whoever counts periods by it counts too many."""
        return None if self.per is None else min_length_us(self.per)

    @property
    def bounds_users(self) -> bool:
        """True where events are bounded by user: records name one, and a user is what is protected or replaced."""
        return self.unit != "event" and self.user is not None

    def bounds(self, *, names_user: bool) -> Iterator[ConfigProblem]:
        """Refuse an unbounded user, and bounds that have nobody to bound.

        Args:
            names_user: whether records say whose they are, see `DomainSection`.
        """
        if self.unit != "user" and not names_user:
            yield ConfigProblem(
                "unit",
                f'"{self.unit}" cannot be promised: a reading is aggregated from many users, and one reading more, '
                "less or another may move the release by its whole range",
                'set unit = "user": it protects a user who moves every reading by its sensitivity',
            )
        elif self.unit == "event":
            yield from self._bounds_without_users('unit = "event" protects single events')
        elif not names_user:
            # A budget may renew all the same: every user is in every period.
            yield from self._bounds_without_users(
                "the records of this domain are sums that name no user",
                keys=("user", "max_contributions", "max_per_step", "surplus"),
            )
        else:
            yield from self._unbounded_user()
            if self.unit == "replace" and self.max_per_step != 1:
                yield ConfigProblem(
                    "max_per_step",
                    'must be 1 with unit = "replace": each member of the population is in one state in a step',
                    "set max_per_step = 1",
                )

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse bounds that contradict each other."""
        if self.max_per_step and self.max_contributions and self.max_per_step > self.max_contributions:
            yield ConfigProblem(
                "max_per_step",
                f"{self.max_per_step} a step is more than max_contributions = {self.max_contributions} in all",
                "lower max_per_step, remove it, or raise max_contributions",
            )

    def _unbounded_user(self) -> Iterator[ConfigProblem]:
        if self.user is None:
            yield ConfigProblem(
                "user",
                f'missing: unit = "{self.unit}" cannot bound a user whom it cannot tell',
                'add user = "<field with the user id>"; only if the data has none, set unit = "event"',
            )
        if self.max_contributions is None:
            yield ConfigProblem(
                "max_contributions",
                "missing: without a bound on a user's events no epsilon holds for the user",
                "add max_contributions = 2 (or more: each event then gets a smaller share of epsilon)",
            )

    def _bounds_without_users(
        self, why: str, keys: tuple[str, ...] = ("user", "max_contributions", "max_per_step", "per", "surplus")
    ) -> Iterator[ConfigProblem]:
        for key in keys:
            if getattr(self, key) is not None:
                yield ConfigProblem(
                    key,
                    f"{why} and would ignore {key}",
                    'set unit = "user" to protect whole users, or remove the key',
                )
