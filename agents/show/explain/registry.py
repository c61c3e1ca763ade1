"""An explanation as an entry for the Differential Privacy Deployments Registry [nanayakkara2025], in its sections.

What the configuration and the engines know is filled in; what only the operator knows says `TO FILL`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.show.explain.parts import Explanation, Share, StreamExplanation

TO_FILL = "TO FILL: "
"""How a field begins that the operator must fill."""
UNITS = {"user": "User-level", "event": "Event-level", "replace": "User-level, of a fixed population"}
_DOMAIN = "domain and bounds"


def registry(explanation: Explanation) -> dict[str, Any]:
    """Return an entry for each stream, and the fields that are left to fill, by their path."""
    entries = []
    for stream in explanation.streams:
        names = {stream.name, *(stream.split.parts if stream.split is not None else ())}
        together = [shared.sentence() for shared in explanation.shared if names & set(shared.names)]
        entry = _entry(stream, " ".join(together))
        entries.append({"stream": stream.name, "to_fill": list(_open(entry)), "deployment": entry})
    return {"ok": True, "entries": entries}


def _entry(stream: StreamExplanation, together: str) -> dict[str, Any]:
    budget, cadence = stream.budget, stream.duration(1)
    epsilon, delta, told = float(budget.unit_epsilon), budget.delta, [stream.promise]
    if stream.split is not None:
        (epsilon, delta), told = stream.split.price.stated, [stream.split.sentence(), stream.promise]
    return {
        "basic": {
            "name": f"{TO_FILL}of the data product; {stream.name} is the stream's",
            "data_curator": f"{TO_FILL}organisation",
            "contact": f"{TO_FILL}whom to ask",
            "intended_use": f"{TO_FILL}what the synthetic stream is for",
            "description": f"synthetic records of a stream of events, by privstream: {stream.engine} ({stream.mode})",
            "data_product_type": "Synthetic data",
            "data_product_region": f"{TO_FILL}where the people live",
            "publication_date": f"{TO_FILL}of the first release",
        },
        "dp_variant": {
            "name": "Approximate differential privacy" if budget.delta else "Pure differential privacy",
            "neighbouring": stream.neighbouring,
            "data_domain": " ".join(point.text for point in stream.public if point.title == _DOMAIN),
            "unprotected_quantities": [f"{point.title}: {point.text}" for point in stream.unprotected],
        },
        "privacy_loss": {
            "privacy_unit": UNITS[stream.protects],
            "privacy_unit_description": stream.unit,
            "privacy_parameters": {"epsilon": epsilon, "delta": delta},
            "privacy_parameters_description": " ".join(told),
        },
        "deployment_model": {
            "model_name": "Central",
            "model_name_description": "The job reads raw events in its operator's cluster and publishes noisy answers.",
            "release_type": "Many releases",
            "release_cadence": cadence,
            "release_type_description": f"One release every {cadence}, at public times, steps without events too; at "
            "most one noisy answer a step.",
            "data_source_type": "Dynamic: events keep coming",
            "access_type": "Not interactive",
        },
        "accounting": {
            "composition": _composition(stream, together),
            "post_processing": "Everything published is computed from noisy answers and public settings alone.",
        },
        "implementation": {
            "mechanisms": [_mechanism(share) for share in budget.shares],
            "contribution_bound": f"{budget.contributions} of one unit, {budget.one} each; further ones are dropped"
            if budget.contributions > 1
            else "see privacy_parameters_description",
            "pre_processing_eda_hyperparameter_tuning": f"{TO_FILL}on which data settings were chosen",
            "justification": f"{TO_FILL}why this epsilon and this unit",
            "security": "Exact discrete noise; its seeds are committed before anything is computed.",
        },
    }


def _composition(stream: StreamExplanation, together: str) -> str:
    budget = stream.budget
    if budget.mu_squared is not None:
        told = f"Gaussian differential privacy of all mechanisms, steps and contributions of one unit: {budget.sum}."
    elif budget.delta:
        told = "The engine accounts for all mechanisms, steps and contributions of one unit together."
    else:
        told = f"Pure: epsilons of mechanisms add up, {budget.terms} for {budget.one}"
        told += f", and so do {budget.contributions} of them of one unit." if budget.contributions > 1 else "."
    roads = " ".join(stream.roads.sentences()) if stream.roads else ""
    return " ".join(part for part in (told, roads, together) if part)


def _mechanism(share: Share) -> Mapping[str, Any]:
    mechanism = share.mechanism
    return {
        "name": mechanism.name,
        "noise": mechanism.distribution,
        "scale": float(mechanism.scale),
        "l1_sensitivity_of_one_contribution": mechanism.l1_sensitivity,
        "uses": mechanism.uses,
        "epsilon_of_the_unit": float(share.unit_epsilon),
    }


def _open(entry: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield from _open(value, f"{above}{name}.")
        elif isinstance(value, str) and value.startswith(TO_FILL):
            yield f"{above}{name}"
