"""The group coordinator: membership, rebalances, sessions, and offsets, those of open transactions included."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.log import OK
from tests.simulation.timeline import Timeline

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED, FENCED_INSTANCE = 22, 25, 27, 79, 82
FIRST_JOIN_S = 3.0  # how long a broker waits for more members of an empty group


@dataclass(slots=True)
class Member:
    session_s: float
    rebalance_s: float
    instance: str | None
    protocols: list[tuple[str, bytes]]
    seen: float = 0.0
    join: Callable[[Any], None] | None = None
    join_type: Any = None
    sync: Callable[[Any], None] | None = None
    sync_type: Any = None


@dataclass(slots=True)
class Group:
    """States: empty, preparing, completing, stable."""

    state: str = "empty"
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    leader: str = ""
    assignment: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    promised: dict[int, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)


class GroupCoordinator:
    """See the module."""

    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        self.timeline = timeline
        self.chance = chance
        self.groups: dict[str, Group] = defaultdict(Group)
        self.rebalances = 0
        self._members = 0
        self.handlers: dict[int, Callable[..., None]] = {
            8: self._commit,
            9: self._fetch,
            11: self._join,
            12: self._heartbeat,
            13: self._leave,
            14: self._sync,
        }

    # --- membership -----------------------------------------------------------------------------------------------

    def _join(self, request: Any, reply: Any, channel: Any) -> None:
        group, name = self.groups[request.group], request.member_id
        instance = request.group_instance_id

        def refuse(error: int, member: str = "") -> None:
            reply(request.RESPONSE_TYPE(0, error, -1, "", "", member, []))

        if not name:
            self._members += 1
            name = f"member-{self._members}"
            old = self._holder(group, instance)
            if old is not None:  # a static member is back: it takes its place, and who had it is fenced
                gone = group.members.pop(old)
                self._dismiss(gone, FENCED_INSTANCE)
                assigned = group.assignment.pop(old, b"")
                if group.state == "stable" and gone.protocols[0][0] == request.group_protocols[0][0]:
                    # Nobody else is disturbed. It is told the old leader, so that it takes itself for a follower.
                    group.assignment[name] = assigned
                    self._put(group, name, request)
                    protocol, leader = request.group_protocols[0][0], group.leader
                    group.leader = name if leader == old else leader
                    reply(request.RESPONSE_TYPE(0, OK, group.generation, protocol, leader, name, []))
                    return
            elif not instance:
                group.pending[name] = None
                refuse(MEMBER_ID_REQUIRED, name)
                return
        elif name not in group.members and name not in group.pending:
            refuse(self._stranger(group, instance))
            return
        group.pending.pop(name, None)
        member = self._put(group, name, request)
        member.join, member.join_type = reply, request.RESPONSE_TYPE
        if group.state in ("empty", "stable", "completing"):
            self._prepare(group)
        self._complete_if_all(group)

    def _put(self, group: Group, name: str, request: Any) -> Member:
        member = group.members.setdefault(name, Member(0.0, 0.0, request.group_instance_id, []))
        member.session_s, member.rebalance_s = request.session_timeout / 1000, request.rebalance_timeout / 1000
        member.protocols = list(request.group_protocols)
        self._touch(group, name, member)
        return member

    @staticmethod
    def _holder(group: Group, instance: str | None) -> str | None:
        return next((key for key, each in group.members.items() if instance and each.instance == instance), None)

    def _stranger(self, group: Group, instance: str | None) -> int:
        """What somebody hears who is no member: that another one has the place, or nothing."""
        return UNKNOWN_MEMBER if self._holder(group, instance) is None else FENCED_INSTANCE

    def _prepare(self, group: Group) -> None:
        self.rebalances += 1
        wait = FIRST_JOIN_S if group.state == "empty" else max(each.rebalance_s for each in group.members.values())
        first = group.state == "empty"
        group.state = "preparing"
        for member in group.members.values():
            if member.sync is not None:
                member.sync(member.sync_type(0, REBALANCING, b""))
                member.sync = None
        generation = group.generation
        self.timeline.after(wait, self._preparation_over, group, generation)
        if first:
            group.assignment = {"": b""}  # marks that the first wait must pass

    def _preparation_over(self, group: Group, generation: int) -> None:
        if group.state == "preparing" and group.generation == generation:
            group.assignment = {}
            for name in [name for name, each in group.members.items() if each.join is None]:
                if group.members[name].instance is None:
                    del group.members[name]
            self._complete(group)

    def _complete_if_all(self, group: Group) -> None:
        waiting = group.state == "preparing" and "" not in group.assignment
        if waiting and all(each.join is not None for each in group.members.values()):
            self._complete(group)

    def _complete(self, group: Group) -> None:
        joined = {name: each for name, each in group.members.items() if each.join is not None}
        if not joined:
            group.state, group.assignment = "empty", {}
            group.members = {}
            return
        group.generation += 1
        group.state, group.assignment = "completing", {}
        group.leader = next(iter(joined))
        protocol = next(iter(joined.values())).protocols[0][0]
        everybody = [(name, each.instance, each.protocols[0][1]) for name, each in group.members.items()]
        for name, member in joined.items():
            join, member.join = member.join, None
            shown = everybody if name == group.leader else []
            assert join is not None
            join(member.join_type(0, OK, group.generation, protocol, group.leader, name, shown))
            self._touch(group, name, member)

    def _sync(self, request: Any, reply: Any, channel: Any) -> None:
        group, name = self.groups[request.group], request.member_id
        member = group.members.get(name)
        if member is None:
            reply(request.RESPONSE_TYPE(0, self._stranger(group, request.group_instance_id), b""))
        elif request.generation_id != group.generation:
            reply(request.RESPONSE_TYPE(0, ILLEGAL_GENERATION, b""))
        elif group.state == "preparing":
            reply(request.RESPONSE_TYPE(0, REBALANCING, b""))
        elif group.state == "stable":
            reply(request.RESPONSE_TYPE(0, OK, group.assignment.get(name, b"")))
        else:
            member.sync, member.sync_type = reply, request.RESPONSE_TYPE
            self._touch(group, name, member)
            if name == group.leader:
                group.assignment = dict(request.group_assignment)
                group.state = "stable"
                for key, each in group.members.items():
                    if each.sync is not None:
                        each.sync(each.sync_type(0, OK, group.assignment.get(key, b"")))
                        each.sync = None

    def _heartbeat(self, request: Any, reply: Any, channel: Any) -> None:
        group = self.groups[request.group]
        member = group.members.get(request.member_id)
        error = OK
        if member is None:
            error = self._stranger(group, getattr(request, "group_instance_id", None))
        elif request.generation_id != group.generation:
            error = ILLEGAL_GENERATION
        else:
            self._touch(group, request.member_id, member)
            if group.state == "preparing":
                error = REBALANCING
        reply(request.RESPONSE_TYPE(0, error))

    def _leave(self, request: Any, reply: Any, channel: Any) -> None:
        group = self.groups[request.group]
        error = OK if request.member_id in group.members else UNKNOWN_MEMBER
        if error == OK:
            self._remove(group, request.member_id)
        reply(request.RESPONSE_TYPE(0, error))

    def _touch(self, group: Group, name: str, member: Member) -> None:
        member.seen = self.timeline.now
        self.timeline.after(member.session_s, self._look, group, name, member, member.seen)

    def _look(self, group: Group, name: str, member: Member, seen: float) -> None:
        if group.members.get(name) is member and member.seen == seen and member.join is None:
            self._remove(group, name)

    def _remove(self, group: Group, name: str) -> None:
        member = group.members.pop(name)
        self._dismiss(member, UNKNOWN_MEMBER)
        if not group.members:
            group.state, group.assignment = "empty", {}
        elif group.state == "preparing":
            self._complete_if_all(group)
        else:
            self._prepare(group)
            self._complete_if_all(group)

    @staticmethod
    def _dismiss(member: Member, error: int) -> None:
        if member.join is not None:
            member.join(member.join_type(0, error, -1, "", "", "", []))
        if member.sync is not None:
            member.sync(member.sync_type(0, error, b""))
        member.join = member.sync = None

    def restarted(self) -> None:
        """The broker was away: sessions begin anew."""
        for group in self.groups.values():
            for name, member in group.members.items():
                member.join = member.sync = None
                self._touch(group, name, member)

    def snapshot(self) -> Callable[[], None]:
        """What puts offsets back to how they are now. Members come again, as after any restart."""
        kept = {name: copy.deepcopy((group.offsets, group.promised)) for name, group in self.groups.items()}

        def restore() -> None:
            for name, group in self.groups.items():
                group.offsets, group.promised = copy.deepcopy(kept.get(name, ({}, {})))

        return restore

    # --- offsets --------------------------------------------------------------------------------------------------

    def _commit(self, request: Any, reply: Any, channel: Any) -> None:
        group = self.groups[request.consumer_group]
        known = request.consumer_id in group.members and request.consumer_group_generation_id == group.generation
        outside = request.consumer_group_generation_id < 0
        error = OK if known or outside else UNKNOWN_MEMBER
        if error == OK:
            for topic, rows in request.topics:
                group.offsets.update({(topic, row[0]): (row[1], row[-1]) for row in rows})
        topics = [(topic, [(row[0], error) for row in rows]) for topic, rows in request.topics]
        reply(request.RESPONSE_TYPE(0, topics))

    def _fetch(self, request: Any, reply: Any, channel: Any) -> None:
        offsets = self.groups[request.consumer_group].offsets
        topics = [
            (topic, [(partition, *offsets.get((topic, partition), (-1, "")), OK) for partition in partitions])
            for topic, partitions in request.topics
        ]
        reply(request.RESPONSE_TYPE(0, topics, OK))

    def promise(self, group: str, producer: int, offsets: dict[tuple[str, int], tuple[int, str]]) -> None:
        """Offsets of an open transaction."""
        self.groups[group].promised.setdefault(producer, {}).update(offsets)

    def settle(self, group: str, producer: int, *, commit: bool) -> None:
        """The marker of the transaction is written."""
        offsets = self.groups[group].promised.pop(producer, {})
        if commit:
            self.groups[group].offsets.update(offsets)
