"""The budgets of an engine's mechanisms, each kept by an accountant that refuses before noise is drawn.

They are made of the engine's guarantee before its first step. A step charges what stands in the guarantee, made anew of
the objects that are about to draw; `Mechanism.account` says from which budget. So what an engine claims and what it
charges are one statement.
An event is used once by each mechanism, over the whole stream, so what a mechanism does at different steps does not add
up for it (parallel composition), and what different mechanisms do adds up (sequential composition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engines.accounting.accountant import Accountant, State
from engines.accounting.ledger import PureEvent
from schemas.errors import BudgetError
from schemas.guarantee import Guarantee

_PREFIX = "budget/"


@dataclass(frozen=True, slots=True)
class Budgets:
    """One accountant for each account of a guarantee, by name. A value: `charged` returns the next one."""

    accountants: Mapping[str, Accountant]

    @staticmethod
    def of(guarantee: Guarantee) -> Budgets:
        """Unspent. Raises: BudgetError if the mechanisms cost more than the guarantee promises, EngineInputError."""
        if sum(guarantee.accounts.values()) > guarantee.epsilon:
            raise BudgetError("the mechanisms of the guarantee cost more than its epsilon")
        accountants = {name: Accountant(epsilon=epsilon) for name, epsilon in guarantee.accounts.items()}
        return Budgets(accountants)

    def charged(self, guarantee: Guarantee, *accounts: str, step: int, events: str = "") -> Budgets:
        """What is left after the mechanisms of these accounts ran at this step.

        Args:
            guarantee: of the engine as it is now.
            events: which ones the step has, where mechanisms see different ones (`Mechanism.events`).
        Raises: BudgetError if one of them would spend more than it has: then no noise must be drawn. KeyError if the
            guarantee has no such account.
        """
        after = {
            name: self.accountants[name].charged(PureEvent(guarantee.charge(name, events=events)), step=step)
            for name in accounts
        }
        return Budgets({**self.accountants, **after})

    def arrays(self) -> State:
        return {
            f"{_PREFIX}{name}/{key}": array
            for name, accountant in self.accountants.items()
            for key, array in accountant.state().items()
        }

    def restored(self, state: State) -> Budgets:
        """Raises: EngineInputError if the state is missing or of other budgets."""
        restored = {}
        for name, accountant in self.accountants.items():
            prefix = f"{_PREFIX}{name}/"
            restored[name] = accountant.restore(
                {key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)}
            )
        return Budgets(restored)
