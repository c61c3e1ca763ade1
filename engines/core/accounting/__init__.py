"""What releases cost, and a budget that refuses them before noise is drawn.

`accountant` holds a budget of epsilon or of mu^2, `budgets` one for each account of an engine. `gaussian` and `lattice`
say what Gaussian noise costs, `user_level` goes from events to users. `promise` works out anew what a built engine
costs, and `streams` adds up the streams of a job.
"""

from engines.core.accounting.accountant import Accountant, Cost

__all__ = ["Accountant", "Cost"]
