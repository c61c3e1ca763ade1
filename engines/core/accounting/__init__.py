"""What releases cost, and a budget that refuses them before noise is drawn.

`ledger` states costs as data; `accountant` holds a budget; `gaussian`, `zcdp` and `privacy_loss` turn costs into
(epsilon, delta); `sensitivity` and `user_level` go from events to users; `streams` adds up the streams of a job.
"""

from engines.core.accounting.accountant import Accountant, Rule
from engines.core.accounting.ledger import (
    Contributions,
    Cost,
    DiscreteGaussianEvent,
    Event,
    GaussianEvent,
    Parallel,
    PureEvent,
    Sequential,
    fold,
)
from engines.core.accounting.streams import StreamCost, Total, totals
from engines.core.accounting.user_level import event_epsilon

__all__ = [
    "Accountant",
    "Contributions",
    "Cost",
    "DiscreteGaussianEvent",
    "Event",
    "GaussianEvent",
    "Parallel",
    "PureEvent",
    "Rule",
    "Sequential",
    "StreamCost",
    "Total",
    "event_epsilon",
    "fold",
    "totals",
]
