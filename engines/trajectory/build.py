"""Engine `trajectory`: from a stream to its domain, its engine and its evaluator.

A worker loads what its configuration asks for: maps, the evaluator and the paper's mode are imported where needed.
"""

from __future__ import annotations

from dataclasses import replace

from engines.core.contract import Evaluator
from engines.core.shares import GaussianShares, PureShares, Shares
from engines.trajectory.default.mode import Default
from engines.trajectory.domain import Closing, TripDomain
from engines.trajectory.engine import Limits, Trajectories, TrajectoryConfig, TripMode
from schemas.config import Stream
from schemas.config.engines.trajectory import TrajectoryOptions, TripsDomainSection


def domain(stream: Stream) -> TripDomain:
    section = TripsDomainSection.from_stream(stream)
    bare = TripDomain(section.x, section.y, section.bounds, section.end, section.end_value)
    if section.file is None:
        return bare
    from engines.trajectory.ground import ground_of

    return replace(bare, ground=ground_of(section.file.content, section.bounds, section.coordinates, section.reach_m))


def _mode(stream: Stream) -> TripMode:
    if stream.mode == "default":
        return Default(side=TrajectoryOptions.from_stream(stream).side, ground=domain(stream).ground)
    from engines.trajectory.papers.paper_trees import Paper

    return Paper(spread=TrajectoryOptions.from_stream(stream).spread)


def shares(stream: Stream) -> Shares:
    """Return what a trip may spend, and how its noise adds up over a user's trips."""
    privacy = stream.privacy
    if not privacy.delta:
        return PureShares(stream.event_epsilon)
    together = _closing(stream).together(stream.changes, privacy.max_per_step)
    return GaussianShares(privacy.epsilon_fraction, privacy.delta, stream.changes, together)


def _closing(stream: Stream) -> Closing:
    options, shortest_us = TrajectoryOptions.from_stream(stream), stream.time.shortest_us
    return Closing(
        idle=options.idle_steps(shortest_us),
        life=options.life_steps(shortest_us),
        period=stream.period_steps,
        most=options.max_points,
    )


def build(stream: Stream) -> Trajectories:
    section, options = TripsDomainSection.from_stream(stream), TrajectoryOptions.from_stream(stream)
    return Trajectories(
        TrajectoryConfig(
            name=stream.name,
            domain=domain(stream),
            shares=shares(stream),
            closing=_closing(stream),
            mode=_mode(stream),
            limits=Limits(points=options.max_points, moves=options.max_moves),
            trip_field=section.trip,
            order_field=section.order,
            records=options.records,
        )
    )


def evaluator(stream: Stream) -> Evaluator:
    from engines.trajectory.metrics import TrajectoryEvaluator

    # Synthetic trips lie on the map, and need not be asked.
    section = TripsDomainSection.from_stream(stream)
    return TrajectoryEvaluator(replace(domain(stream), ground=None), section.trip, section.order)
