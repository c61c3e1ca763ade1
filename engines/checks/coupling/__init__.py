"""The coupling test: a second run on neighbouring data is forced through the noisy values that a first run released.

What is public must then be equal, byte for byte, and what the forced values cost is known exactly. It needs no luck:
one pair of runs shows a leak that a thousand sampled runs would not.
"""

from engines.checks.coupling.guarded import check_guarded, guarded_run
from engines.checks.coupling.loss import Losses, Uses
from engines.checks.coupling.witnesses import CouplingBroken, Forced, OutputAdversary, Recorder, Used

__all__ = [
    "CouplingBroken",
    "Forced",
    "Losses",
    "OutputAdversary",
    "Recorder",
    "Used",
    "Uses",
    "check_guarded",
    "guarded_run",
]
