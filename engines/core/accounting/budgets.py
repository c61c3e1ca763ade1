"""The budgets of an engine's mechanisms, each kept by an accountant that refuses before noise is drawn.

They are made of the engine's guarantee before its first step. A step charges what stands in the guarantee, made anew of
the objects that are about to draw; `Mechanism.account` says from which budget. So what an engine claims and what it
charges are one statement.
Where the guarantee has a delta, its mechanisms' Gaussian noise adds up by mu^2, of the guarantee's unit.
An event is used once by each mechanism, over the whole stream, so what a mechanism does at different steps does not add
up for it (parallel composition), and what different mechanisms do adds up (sequential composition).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from engines.core.accounting.accountant import Accountant, Cost, State
from schemas.arrays import below, under
from schemas.errors import BudgetError
from schemas.guarantee import Guarantee, Mechanism

_PREFIX = "budget/"


@dataclass(frozen=True, slots=True)
class Budgets:
    """One accountant for each account of a guarantee, by name. A value: `charged` returns the next one."""

    accountants: Mapping[str, Accountant]

    @staticmethod
    def from_guarantee(guarantee: Guarantee) -> Budgets:
        """Return them unspent. Raises: BudgetError if the mechanisms cost more than is promised, EngineInputError."""
        if guarantee.delta:
            unspent = Accountant(epsilon=guarantee.epsilon, delta=guarantee.delta, rule="gaussian")
            _ = unspent.charged(_gaussian(guarantee.mechanisms))
            return Budgets(dict.fromkeys(guarantee.accounts, unspent))
        if sum(guarantee.accounts.values()) > guarantee.epsilon:
            raise BudgetError("the mechanisms of the guarantee cost more than its epsilon")
        return Budgets({name: Accountant(epsilon=epsilon) for name, epsilon in guarantee.accounts.items()})

    def charged(self, guarantee: Guarantee, *accounts: str, step: int) -> Budgets:
        """Return what is left after the mechanisms of these accounts ran at this step.

        Args: guarantee: of the engine as it is now.
        Raises: BudgetError if one of them would spend more than it has: then no noise must be drawn. KeyError if the
            guarantee has no such account.
        """
        after = {name: self.accountants[name].charged(_cost(guarantee, name), step=step) for name in accounts}
        budgets = Budgets({**self.accountants, **after})
        if guarantee.delta:
            # Each of these may spend all of the unit's mu^2, and all of them together no more than that.
            (unspent,) = {accountant.unspent for accountant in budgets.accountants.values()}
            spent = sum((kept.spent.mu_squared for kept in budgets.accountants.values()), Fraction(0))
            _ = unspent.charged(Cost.gaussian_dp(spent))
        return budgets

    def arrays(self) -> State:
        arrays: State = {}
        for name, accountant in self.accountants.items():
            arrays |= under(f"{_PREFIX}{name}/", accountant.state())
        return arrays

    def restored(self, state: State) -> Budgets:
        """Return the budgets whose `arrays()` these are. Raises: EngineInputError if they are missing or of others."""
        return Budgets(
            {
                name: accountant.restore(below(f"{_PREFIX}{name}/", state))
                for name, accountant in self.accountants.items()
            }
        )


def _cost(guarantee: Guarantee, account: str) -> Cost:
    """Return what the mechanisms of an account cost one event."""
    if not guarantee.delta:
        return Cost.pure_dp(guarantee.accounts[account])
    return _gaussian(m for m in guarantee.mechanisms if m.account == account)


def _gaussian(mechanisms: Iterable[Mechanism]) -> Cost:
    """Return the cost of all of these. Raises: BudgetError if one has no mu^2, KeyError if there are none."""
    total = Fraction(0)
    for mechanism in mechanisms:
        if mechanism.mu_squared is None:
            raise BudgetError(f'"{mechanism.name}" has no mu^2 by which it could be charged beside Gaussian noise')
        total += mechanism.mu_squared * mechanism.uses
    if not total:
        raise KeyError("no mechanism is charged")
    return Cost.gaussian_dp(total)
