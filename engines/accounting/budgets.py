"""The budgets of an engine's mechanisms, each kept by an accountant that refuses before noise is drawn.

An event is used once by each mechanism, over the whole stream, so what a mechanism does at different steps does not add
up for it (parallel composition), and what different mechanisms do adds up (sequential composition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from engines.accounting.accountant import Accountant, State
from engines.accounting.ledger import PureEvent

_PREFIX = "budget/"


@dataclass(frozen=True, slots=True)
class Budgets:
    """One accountant for each mechanism, by name. A value: `charged` returns the next one."""

    accountants: Mapping[str, Accountant]

    @staticmethod
    def of(**epsilons: Fraction) -> Budgets:
        """Args: epsilons: of one event, for each mechanism over the whole stream. Raises: EngineInputError."""
        return Budgets({name: Accountant(epsilon=epsilon) for name, epsilon in epsilons.items()})

    def charged(self, *, step: int, **epsilons: Fraction) -> Budgets:
        """What is left after these mechanisms ran at this step with these epsilons.

        Raises: BudgetError if one of them would spend more than it has: then no noise must be drawn.
        """
        after = {name: self.accountants[name].charged(PureEvent(cost), step=step) for name, cost in epsilons.items()}
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
