"""A fixed budget, and releases that are refused before any noise is drawn.

It adds up what it is TOLD that a release costs: constants of the configuration. It sees no data, no noise and no count,
so it does not notice a count that is measured seven times and charged once, noise of half the scale, or a measurement
that nobody charged. That each draw happens as often as it is charged, with the scale that its charge says, is shown
elsewhere: by the proofs in docs/guarantee.md, and by coupled runs.

Guarantee: whatever was charged, however later events were chosen after earlier releases, is (epsilon, delta)-DP for
    one user of at most `contributions` events. The rule is fixed with the budget: choosing one afterwards is not sound.
Source: [rogers2016] (pure); [koskela2023] and [smith2022] (Gaussian);
    [whitehouse2023] (zCDP).
Units: epsilon in nats, of one user (one event, where contributions = 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from engines.core.accounting.arguments import check_delta, check_epsilon, check_whole
from engines.core.accounting.ledger import NOTHING, Cost, Event, Shift, fold
from schemas.errors import BudgetError, EngineInputError

Rule = Literal["pure", "gaussian", "zcdp", "schedule"]
"""What adds up: epsilon; mu**2 of continuous Gaussian noise; rho; or the exact privacy loss, which holds only where all
parameters are public beforehand (a schedule) and none depends on a release."""

RULES: tuple[Rule, ...] = get_args(Rule)
State = dict[str, np.ndarray]
_KEY = "accountant"
_VERSION = "privstream-accountant-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accountant:
    """A budget and what is spent of it. A value: `charged` returns the next one, and leaves this one as it is.

    Args:
        epsilon: of one user over the whole life of the accountant.
        delta: 0 for rule "pure", in (0, 1) for the others.
        rule: see `Rule`.
        contributions: events of one user at most; each charge is what ONE event costs.
    Raises: EngineInputError if a number is out of range, or delta does not go with the rule.

    >>> budget = Accountant(epsilon=Fraction(1))
    >>> from engines.core.accounting import PureEvent
    >>> after = budget.charged(PureEvent(Fraction(2, 3)), step=0).charged(PureEvent(Fraction(1)), step=1)
    >>> after.charged(PureEvent(Fraction(1, 100)), step=1)
    Traceback (most recent call last):
    ...
    schemas.errors.BudgetError: the release would cost epsilon 1.01 in all, and the budget is 1
    """

    epsilon: Fraction
    delta: float = 0.0
    rule: Rule = "pure"
    contributions: int = 1
    common: Cost = NOTHING
    finished: Cost = NOTHING
    current: Cost = NOTHING
    step: int = -1

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_whole(contributions=self.contributions)
        if self.rule not in RULES:
            raise EngineInputError("rule must be pure, gaussian, zcdp or schedule")
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
        """What one user has paid at most, all steps together."""
        return (self.common + self.finished.either(self.current)).times(self.contributions)

    def charged(self, event: Event, *, step: int | None = None) -> Accountant:
        """Return the accountant after this release.

        Args:
            event: what one event of the stream costs there.
            step: the release measures events that no release of another step measures: then charges of different
                steps do not add up (parallel composition). None: it may measure every event again.
        Raises: BudgetError if the release would cost more than is left: draw no noise for it. EngineInputError if
            `step` is before one that was charged, or the rule cannot account for the event.
        """
        cost = fold(event)
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
        if self.rule == "pure":
            if spent.mu_squared or spent.discrete:
                raise BudgetError("the release needs a delta, and the budget has none: Gaussian noise is never pure")
            _refuse("epsilon", spent.pure, self.epsilon)
        elif self.rule == "gaussian":
            if spent.pure or spent.discrete:
                raise EngineInputError(
                    'rule "gaussian" is for continuous Gaussian noise alone: use "zcdp" or "schedule"'
                )
            _refuse("mu**2", spent.mu_squared, _most("gaussian", self.epsilon, self.delta))
        elif self.rule == "zcdp":
            _refuse("rho", spent.rho, _most("zcdp", self.epsilon, self.delta))
        else:
            from engines.core.accounting import privacy_loss

            _refuse("delta", Fraction(privacy_loss.of_cost(spent, self.epsilon)), Fraction(self.delta))

    def state(self) -> State:
        """Return what `restore` takes: arrays; the budget is in it, so that another one is refused."""
        parts = (self._budget(), str(self.step), *map(_text, (self.common, self.finished, self.current)))
        return {_KEY: np.frombuffer("|".join(parts).encode(), np.uint8).copy()}

    @staticmethod
    def kept(state: State) -> dict[str, Accountant]:
        """Every accountant in the state of an engine, by the name of its array. Raises: EngineInputError."""
        found = {}
        for name, array in state.items():
            if name == _KEY or name.endswith(f"/{_KEY}"):
                version, rule, epsilon, delta, contributions = bytes(array).decode().split("|")[0].split(" ")
                if version != _VERSION or rule not in RULES:
                    raise EngineInputError("state of an accountant is of another version")
                made = Accountant(
                    epsilon=_number(epsilon),
                    delta=float(delta),
                    rule=rule,
                    contributions=int(contributions),
                )
                found[name] = made.restore({_KEY: array})
        return found

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
        return f"{_VERSION} {self.rule} {self.epsilon} {self.delta!r} {self.contributions}"


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
    """Six digits where that is enough to see it; two numbers that are compared must not look equal."""
    rounded = f"{float(value):.6g}"
    return rounded if Fraction(rounded) == value or value.denominator > 10**6 else str(value)


@lru_cache(maxsize=256)
def _most(rule: Rule, epsilon: Fraction, delta: float) -> Fraction:
    """Return the most mu**2 or rho that (epsilon, delta) allows."""
    from engines.core.accounting import gaussian, zcdp

    if rule == "gaussian":
        return Fraction(gaussian.mu_for(epsilon, delta)) ** 2
    return Fraction(zcdp.rho_for(epsilon, delta))


def _text(cost: Cost) -> str:
    uses = [f"{shift.sigma_squared}:{shift.shift}:{count}" for shift, count in cost.discrete]
    return " ".join([str(cost.pure), str(cost.pure_rho), str(cost.mu_squared), *uses])


_NUMBER = re.compile(r"[0-9]+(/[1-9][0-9]*)?", re.ASCII)


def _cost(text: str) -> Cost:
    pure, pure_rho, mu_squared, *uses = text.split(" ")
    discrete = []
    for use in uses:
        sigma_squared, shift, count = use.split(":")
        discrete.append((Shift(_number(sigma_squared), int(shift)), int(count)))
    return Cost(_number(pure), _number(pure_rho), _number(mu_squared), tuple(discrete))


def _number(text: str) -> Fraction:
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return Fraction(text)
