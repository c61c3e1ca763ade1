"""What a configuration promises, worked out from the engines themselves: as data, and as text, JSON or a page.

Start at `explain`. Nothing here is typed in twice: budgets, sensitivities and scales come from
`engine.guarantee()`, all else from the configuration.
"""

from agents.show.explain.build import explain
from agents.show.explain.parts import Budget, Explanation, Notch, Point, Share, SharedBudget, StreamExplanation
from agents.show.presentation.error import ErrorModel
from agents.show.presentation.laws import NoiseFacts, noise_facts

__all__ = [
    "Budget",
    "ErrorModel",
    "Explanation",
    "NoiseFacts",
    "Notch",
    "Point",
    "Share",
    "SharedBudget",
    "StreamExplanation",
    "explain",
    "noise_facts",
]
