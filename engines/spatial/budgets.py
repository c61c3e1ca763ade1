"""The budgets of a spatial engine's mechanisms, see `engines.accounting.budgets`."""

from engines.accounting.budgets import Budgets

__all__ = ["Budgets"]
