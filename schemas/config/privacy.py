"""`[streams.privacy]`: the unit of privacy, and the budget of all releases of the stream together.

Epsilon and delta are those of one user (or one event) over the whole stream, or over one period if `per` is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, StrictInt

from schemas.config.values import ExactDecimal, FieldName, Number, Section, StepLength, must
from schemas.errors import ConfigProblem
from schemas.guarantee import Unit, format_percent, max_posterior
from schemas.steps import min_length_us

SURPLUS_SHARE = Fraction(1, 10)
"""Share of the budget for counting the events that the bounds refuse."""
MAX_EPSILON = 1000
"""Far beyond any guarantee: a larger value is a typing error."""
MAX_DELTA = 0.01
UNUSUAL_EPSILON = 10
"""A larger value is answered with a warning of how little it promises."""
UNUSUAL_DELTA = 1e-5
"""A larger value is answered with a warning to compare it with the number of users, which the job does not know."""


Epsilon = Annotated[
    ExactDecimal,
    must(lambda value: value > 0, "must be greater than 0", "write a positive number; 1.0 is a usual choice"),
    must(
        lambda value: value <= MAX_EPSILON,
        f"is above {MAX_EPSILON}, which protects nobody",
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
    """Largest privacy loss of one unit over all releases together; exactly the decimal number in the file."""
    delta: Delta = Field(0.0, examples=[0.0])
    """0 for pure epsilon-DP; modes with Gaussian noise need a delta far below one divided by the number of users."""
    unit: Unit = Field("user", examples=["user"])
    """What epsilon protects: all events of one `user`, a single `event`, or the states of one member (`replace`)."""
    user: FieldName | None = Field(None, examples=["user_id"])
    """Field of the raw event that holds the user's id."""
    max_contributions: StrictInt | None = Field(None, ge=1, le=1_000_000, examples=[2])
    """Events of one user that count, over the stream or each period; a `ttl` insert counts `Stream.insert_charge`."""
    max_per_step: StrictInt | None = Field(None, ge=1, le=1_000_000, examples=[1])
    """Events of one user that count in one step (trips that begin in it); absent: only `max_contributions` bounds."""
    per: StepLength | None = Field(None, examples=["30d"])
    """Length of the aligned periods after which the bound renews, in whole steps; `"30 days"` with calendar steps;
    absent: the bound never renews."""
    surplus: StrictInt | None = Field(None, ge=1, le=1000, examples=[5])
    """Count up to this many times `max_contributions` further events of each user, for a tenth of epsilon, and scale
    synthetic data up accordingly; absent: synthetic data stands for the events within the bound."""
    user_key_file: Path | None = Field(None, examples=["/run/secrets/user-key"])
    """File with the secret key of the hash of user ids; absent: the environment's `PRIVSTREAM_USER_KEY_FILE`."""

    @property
    def epsilon_fraction(self) -> Fraction:
        """`epsilon` as an exact fraction: 0.1 is 1/10."""
        return Fraction(self.epsilon)

    @property
    def epsilon_warning(self) -> str | None:
        """A warning if epsilon promises almost nothing; else None."""
        if self.epsilon <= UNUSUAL_EPSILON:
            return None
        sure = format_percent(max_posterior(float(self.epsilon)))
        return f"epsilon above {UNUSUAL_EPSILON} promises little: from an even chance somebody may get {sure} sure."

    @property
    def delta_warning(self) -> str | None:
        """A warning if delta may be too large for the number of users or events, which is not known; else None."""
        if self.delta <= UNUSUAL_DELTA:
            return None
        units = "events" if self.unit == "event" else "users"
        return (
            f"delta = {self.delta:g} is above {UNUSUAL_DELTA:g}: it must be far below one divided by the number of "
            f"your {units}, since N times delta of N {units} may be unprotected altogether. It is too large from "
            f"{round(1 / self.delta):,} {units} on."
        )

    @property
    def per_us(self) -> int | None:
        """Shortest length of a period in microseconds, by which too many periods are counted; None if it never ends."""
        return None if self.per is None else min_length_us(self.per)

    @property
    def bounds_users(self) -> bool:
        """Whether events are bounded by user: records name users, and the unit is a user."""
        return self.unit != "event" and self.user is not None

    def bound_problems(self, *, names_user: bool) -> Iterator[ConfigProblem]:
        """Refuse users without a bound, and bounds without users.

        Args:
            names_user: whether records name their user; see `DomainSection`.
        """
        if self.unit != "user" and not names_user:
            yield ConfigProblem(
                "unit",
                f'"{self.unit}" cannot be protected: a reading is aggregated from many users, and adding, removing or '
                "replacing one reading may move the release by its whole range",
                'set unit = "user": it protects a user who moves every reading by its sensitivity',
            )
        elif self.unit == "event":
            yield from self._bounds_without_users('unit = "event" protects single events')
        elif not names_user:
            # `per` is allowed: the budget may renew, because every user is in every period.
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
                f'missing: unit = "{self.unit}" can bound only users whom the events name',
                'add user = "<field with the user id>"; only if the data has none, set unit = "event"',
            )
        if self.max_contributions is None:
            yield ConfigProblem(
                "max_contributions",
                "missing: without a bound on the events of a user, no epsilon holds for the user",
                "add max_contributions, as many as the stream has steps: each counts all members"
                if self.unit == "replace"
                else "add max_contributions = 2, or more: each event then gets a smaller share of epsilon",
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
