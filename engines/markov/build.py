"""Engine `markov`: from a stream to its domain, its engine and its evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scipy import sparse

from engines.core.contract import Engine, Evaluator
from engines.markov.chain import Transition
from engines.markov.domain import StatesDomain
from engines.markov.engine import Markov, MarkovConfig
from schemas.config import Stream
from schemas.config.engines.markov import MarkovOptions, StatesDomainSection

if TYPE_CHECKING:
    from engines.markov.leakage import Allocation


def domain(stream: Stream) -> StatesDomain:
    section = StatesDomainSection.from_stream(stream)
    return StatesDomain(section.field, section.values)


def transition(stream: Stream) -> Transition | None:
    """Return the declared chain, or None where it is learnt. Raises: EngineInputError."""
    matrix = StatesDomainSection.from_stream(stream).matrix
    if matrix is None:
        return None
    shape = (matrix.states, matrix.states)
    return Transition.from_matrix(sparse.csr_array((matrix.probabilities, (matrix.rows, matrix.columns)), shape=shape))


def allocation(stream: Stream) -> Allocation | None:
    """Return the budgets of the steps under `allocation = "leakage"`, else None.

    Raises: EngineInputError if there are none.
    """
    chain = transition(stream)
    if MarkovOptions.from_stream(stream).allocation != "leakage" or chain is None:
        return None
    from engines.markov.leakage import EXACT_STATES, Adversary, allocate  # a worker loads what its mode draws on

    known = Adversary.from_matrix(chain.dense) if chain.states <= EXACT_STATES else Adversary.worst()
    return allocate(stream.privacy.epsilon_fraction, known, horizon=MarkovOptions.from_stream(stream).horizon)


def build(stream: Stream) -> Engine:
    section, options = StatesDomainSection.from_stream(stream), MarkovOptions.from_stream(stream)
    return Markov(
        MarkovConfig(
            name=stream.name,
            domain=domain(stream),
            population=section.population,
            epsilon=stream.event_epsilon,
            mode=stream.mode,
            transition=transition(stream),
            unseen=section.unseen,
            first=options.prior,
            lag=options.lag,
            horizon=options.horizon,
            allocation=allocation(stream),
        )
    )


def evaluator(stream: Stream) -> Evaluator:
    from engines.markov.evaluator import MarkovEvaluator  # here: a worker measures no utility

    return MarkovEvaluator(domain(stream))
