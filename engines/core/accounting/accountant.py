"""A fixed budget, and releases that are refused before any noise is drawn.

It adds up what it is TOLD that a release costs: constants of the configuration. It sees no data, no noise and no count,
so it does not notice a count that is measured seven times and charged once, noise of half the scale, or a measurement
that nobody charged. That each draw happens as often as it is charged, with the scale that its charge says, is shown
elsewhere: by the proofs in docs/guarantee.md, and by coupled runs.

Guarantee: whatever was charged, however later events were chosen after earlier releases, is (epsilon, delta)-DP for
    whoever a `Cost` is stated for. The rule is fixed with the budget: choosing one afterwards is not sound.
Source: [rogers2016] (epsilon with a fixed total); [koskela2023] and [smith2022] (mu^2 with a fixed total); [dong2019]
    (mu^2 adds up).
Units: epsilon in nats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from engines.core.accounting.arguments import check_delta, check_epsilon, check_positive
from schemas.errors import BudgetError, EngineInputError

Rule = Literal["pure", "gaussian", "schedule"]
"""What adds up: epsilon of pure mechanisms; mu^2 of Gaussian noise; or epsilon of noise whose whole public schedule was
shown to be (epsilon, delta)-DP beforehand, by a proof of its own, and which is charged as a whole."""

RULES: tuple[Rule, ...] = get_args(Rule)
State = dict[str, np.ndarray]
_KEY = "accountant"
_VERSION = "privstream-accountant-1"


@dataclass(frozen=True, slots=True)
class Cost:
    """What releases cost whoever is protected. Exact, so the order of composition does not matter.

    Attributes:
        pure: epsilon of all pure mechanisms.
        pure_rho: their zCDP, the sum of epsilon^2 / 2 of each; kept in states for whoever reads them by it.
        mu_squared: of all Gaussian noise together, as one Gaussian-DP mechanism.
    """

    pure: Fraction = Fraction(0)
    pure_rho: Fraction = Fraction(0)
    mu_squared: Fraction = Fraction(0)

    @staticmethod
    def pure_dp(epsilon: Fraction) -> Cost:
        """Return the cost of a mechanism that is epsilon-DP. Raises: EngineInputError if it is no positive Fraction."""
        check_epsilon(epsilon)
        return Cost(pure=epsilon, pure_rho=epsilon**2 / 2)

    @staticmethod
    def gaussian_dp(mu_squared: Fraction) -> Cost:
        """Return the cost of a mechanism that is mu-GDP. Raises: EngineInputError if mu^2 is not positive."""
        check_positive(mu_squared=mu_squared)
        return Cost(mu_squared=mu_squared)

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both, on the same data (sequential composition)."""
        return Cost(self.pure + other.pure, self.pure_rho + other.pure_rho, self.mu_squared + other.mu_squared)

    def either(self, other: Cost) -> Cost:
        """Return the cost of one of both at most, on disjoint data (parallel composition): a bound, part by part."""
        return Cost(
            max(self.pure, other.pure), max(self.pure_rho, other.pure_rho), max(self.mu_squared, other.mu_squared)
        )


NOTHING = Cost()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accountant:
    """A budget and what is spent of it. A value: `charged` returns the next one, and leaves this one as it is.

    Args:
        epsilon: over the whole life of the accountant.
        delta: 0 for rule "pure", in (0, 1) for the others.
        rule: see `Rule`.
    Raises: EngineInputError if a number is out of range, or delta does not go with the rule.

    >>> budget = Accountant(epsilon=Fraction(1))
    >>> after = budget.charged(Cost.pure_dp(Fraction(2, 3)), step=0).charged(Cost.pure_dp(Fraction(1)), step=1)
    >>> after.charged(Cost.pure_dp(Fraction(1, 100)), step=1)
    Traceback (most recent call last):
    ...
    schemas.errors.BudgetError: the release would cost epsilon 1.01 in all, and the budget is 1
    """

    epsilon: Fraction
    delta: float = 0.0
    rule: Rule = "pure"
    common: Cost = NOTHING
    finished: Cost = NOTHING
    current: Cost = NOTHING
    step: int = -1

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.rule not in RULES:
            raise EngineInputError(f"rule must be one of {', '.join(RULES)}")
        if self.rule != "pure":
            check_delta(self.delta)
        elif self.delta != 0:
            raise EngineInputError('delta must be 0 for rule "pure"')

    @property
    def unspent(self) -> Accountant:
        """The same budget before any charge."""
        return replace(self, common=NOTHING, finished=NOTHING, current=NOTHING, step=-1)

    @property
    def spent(self) -> Cost:
        """What was paid at most, all steps together."""
        return self.common + self.finished.either(self.current)

    def charged(self, cost: Cost, *, step: int | None = None) -> Accountant:
        """Return the accountant after a release of this cost.

        Args:
            step: the release measures events that no release of another step measures: then charges of different
                steps do not add up (parallel composition). None: it may measure every event again.
        Raises: BudgetError if the release would cost more than is left: draw no noise for it. EngineInputError if
            `step` is before one that was charged, or the rule cannot account for the cost.
        """
        if step is None:
            after = replace(self, common=self.common + cost)
        elif step == self.step:
            after = replace(self, current=self.current + cost)
        elif step > self.step:
            after = replace(self, finished=self.finished.either(self.current), current=cost, step=step)
        else:
            raise EngineInputError(f"step {step} is before step {self.step}, which was charged already")
        after._check()
        return after

    def _check(self) -> None:
        spent = self.spent
        if self.rule == "gaussian":
            from engines.core.accounting.gaussian import mu_squared_for  # here: what is pure need not load scipy

            if spent.pure:
                raise EngineInputError('rule "gaussian" is for Gaussian noise alone')
            _refuse("mu**2", spent.mu_squared, mu_squared_for(self.epsilon, self.delta))
        elif spent.mu_squared:
            raise BudgetError(
                "the release needs a budget of mu**2, and this is one of epsilon: Gaussian noise is never pure"
            )
        else:
            _refuse("epsilon", spent.pure, self.epsilon)

    def state(self) -> State:
        """Return what `restore` takes: arrays; the budget is in it, so that another one is refused."""
        costs = (
            f"{each.pure} {each.pure_rho} {each.mu_squared}" for each in (self.common, self.finished, self.current)
        )
        return {_KEY: np.frombuffer("|".join((self._budget(), str(self.step), *costs)).encode(), np.uint8).copy()}

    @staticmethod
    def kept(state: State) -> dict[str, Accountant]:
        """Return every accountant in the state of an engine, by the name of its array. Raises: EngineInputError."""
        accountants = {}
        for name, array in state.items():
            if name == _KEY or name.endswith(f"/{_KEY}"):
                version, rule, epsilon, delta, _ = bytes(array).decode().split("|")[0].split(" ")
                if version != _VERSION or rule not in RULES:
                    raise EngineInputError("state of an accountant is of another version")
                unspent = Accountant(epsilon=_number(epsilon), delta=float(delta), rule=rule)
                accountants[name] = unspent.restore({_KEY: array})
        return accountants

    def restore(self, state: State) -> Accountant:
        """Return the accountant whose `state()` this was.

        Raises: EngineInputError if the state is missing, of another version, or of another budget: start a new stream
            for a new budget, and let `streams.totals` add up both.
        """
        if _KEY not in state:
            raise EngineInputError(f"state lacks {_KEY}")
        try:
            budget, step, *costs = bytes(np.asarray(state[_KEY], np.uint8)).decode().split("|")
            common, finished, current = map(_cost, costs)
            at = int(step)
        except ValueError:
            raise EngineInputError("state of the accountant is damaged or of another version") from None
        if budget != self._budget():
            raise EngineInputError("state is of another budget: a running stream keeps its epsilon, delta and bounds")
        return replace(self, common=common, finished=finished, current=current, step=at)

    def _budget(self) -> str:
        # The last number says of how many events a cost is: of one.
        return f"{_VERSION} {self.rule} {self.epsilon} {self.delta!r} 1"


def paid(accountants: Iterable[Accountant]) -> Fraction:
    """Return the epsilon that was charged to these accountants together: 0 before any noise.

    Pure charges add up. A promise with a delta counts as a whole from its first charge on, and once for all accountants
    that share it: part of a mu^2 has a smaller epsilon at the same delta, but only where nobody chooses, by what came
    out, when to look ([rogers2016]).
    """
    accountants = list(accountants)
    pure = sum((accountant.spent.pure for accountant in accountants if not accountant.delta), Fraction(0))
    promised = {(each.epsilon, each.delta) for each in accountants if each.delta and each.spent != NOTHING}
    return sum((epsilon for epsilon, _ in promised), pure)


def _refuse(what: str, spent: Fraction, budget: Fraction) -> None:
    if spent > budget:
        raise BudgetError(f"the release would cost {what} {_short(spent)} in all, and the budget is {_short(budget)}")


def _short(value: Fraction) -> str:
    """Write six digits where that is enough to see it; two numbers that are compared must not look equal."""
    rounded = f"{float(value):.6g}"
    return rounded if Fraction(rounded) == value or value.denominator > 10**6 else str(value)


_NUMBER = re.compile(r"[0-9]+(/[1-9][0-9]*)?", re.ASCII)


def _cost(text: str) -> Cost:
    pure, pure_rho, mu_squared = map(_number, text.split(" "))
    return Cost(pure, pure_rho, mu_squared)


def _number(text: str) -> Fraction:
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return Fraction(text)
