"""How engine `toy` is shown."""

from __future__ import annotations

from agents.show.noise import Answer, ErrorModel, noise_facts
from agents.show.view import View
from schemas.config import Stream
from schemas.guarantee import Guarantee


def _domain(stream: Stream) -> str:
    return f"events with any text in {stream.domain.fields[0]}, of which only the number is released."


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    noise = noise_facts(next(iter(guarantee)))
    answer = Answer.of("events of a step", 1, "one number", lambda t: noise.deviation, lambda t: noise.interval)
    return ErrorModel(
        (answer,),
        sizes="numbers",
        growth="The error does not grow: each step counts other events",
        formula="sd = sqrt(V),  V = variance of discrete Laplace noise of scale 1/ε",
        conditions="It is all the error there is.",
    )


VIEW = View(domain=_domain, error_model=_error_model)
