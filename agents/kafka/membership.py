"""A worker keeps its place in the consumer groups when it is killed and started again: static membership (KIP-345).

Without it the group waits for the dead worker until its session ends, 30 s by default, before anybody goes on with its
partitions. With it a worker that comes back under the same *group instance id* takes its own place at once.

The id belongs to a lock file in the data folder. Whoever locks the file has the id; the system lets go of the lock when
the process dies, however it dies. So workers that share a folder have ids of their own, and a copy of a folder has
another. Where two processes come to one id all the same (a cloned machine), the broker lets the newer one in and the
older one must end: it is told by `ReplacedError`. No promise rests on that: what an older worker still does is refused
by the newer one's fences. See docs/notes/0021-a-place-in-the-group.md.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.admin import DescribeGroupsRequest_v1
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.group import HeartbeatRequest, HeartbeatResponse_v1
from aiokafka.protocol.types import Int32, Schema, String

from schemas.errors import BrokerError, ReplacedError

log = logging.getLogger(__name__)


MOST_WORKERS = 256  # that share a data folder
TRIES, TRY_AGAIN_S = 300, 0.1
FENCED_INSTANCE_ID = 82
HEARTBEAT_S = 1.0
"""How often a worker asks whether the group is the same: a rebalance waits until all have asked. A session is 6 s."""


@dataclass(frozen=True, slots=True)
class Place:
    """A group instance id, held by a locked file, `lock`, until that is closed or the process ends."""

    instance_id: str
    lock: int


def take_place(folder: Path) -> Place | None:
    """Take the first free place of a data folder; None, with a line in the log, where the file system has no locks."""
    for number in count():
        try:
            return _lock(folder / f"worker-{number}.lock")
        except BlockingIOError:
            if number + 1 < MOST_WORKERS:
                continue
            reason = f"{MOST_WORKERS} workers use it already"
        except OSError as error:
            reason = error.strerror or type(error).__name__
        log.warning("no lock in %s (%s): a killed worker is waited for until its session ends", folder, reason)
        return None
    raise AssertionError  # `count` has no end


def _lock(path: Path) -> Place:
    """Lock a file, and return its place. Raises: BlockingIOError if somebody has it, OSError if it cannot be had."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Nobody writes the file, so its time is that of its making: a copy elsewhere is another file.
        facts = os.fstat(file)
        made = f"{path.resolve()}\0{facts.st_ino}\0{facts.st_mtime_ns}"
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100]
        return Place(f"{host}-{hashlib.blake2b(made.encode(), digest_size=8).hexdigest()}", file)
    except BaseException:
        os.close(file)
        raise


class _HeartbeatRequest_v3(RequestStruct):  # noqa: N801  # as in aiokafka
    API_KEY = 12
    API_VERSION = 3
    RESPONSE_TYPE = HeartbeatResponse_v1
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
    )


class _InstanceHeartbeat(Request[_HeartbeatRequest_v3]):
    """A heartbeat that names its instance: only then does the broker tell a replaced member from an expired one."""

    API_KEY = 12

    def __init__(self, *fields: Any) -> None:
        self._fields = fields

    def build(self, request_struct_class: type[_HeartbeatRequest_v3]) -> _HeartbeatRequest_v3:
        return request_struct_class(*self._fields)


class _GoneError(KafkaError):
    """What keeps a replaced member from doing anything more."""


class StaticMember(GroupCoordinator):
    """aiokafka's coordinator, which knows when another process has taken its place.

    The stock one does not say which instance it is, is told that it is unknown, joins again under the same id, and so
    throws the newer process out, which does the same: for ever.
    """

    replaced: Callable[[ReplacedError], Awaitable[None]]
    _asked: _InstanceHeartbeat | None = None
    _gone = False

    async def _send_req(self, request: Any) -> Any:
        if self._gone:
            await asyncio.sleep(HEARTBEAT_S)
            raise _GoneError
        if isinstance(request, HeartbeatRequest) and self._group_instance_id is not None:
            request = self._asked = _InstanceHeartbeat(
                self.group_id, self.generation, self.member_id, self._group_instance_id
            )
        response = await super()._send_req(request)
        if getattr(response, "error_code", 0) == FENCED_INSTANCE_ID:
            self._gone = True
            await self.replaced(
                ReplacedError(
                    f"another process has taken this worker's place in group {self.group_id} "
                    f"(group instance id {self._group_instance_id})"
                )
            )
            raise _GoneError
        return response

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        if not self.member_id and self._asked is not None and self._group_instance_id is not None:
            # Unknown to the broker: its session is over, and then it may come back; or somebody has its place.
            try:
                await self._send_req(self._asked)
            except KafkaError:
                return False
        return bool(await super()._do_rejoin_group(subscription))


def keep_place(consumer: Any, replaced: Callable[[ReplacedError], Awaitable[None]]) -> None:
    """Call `replaced` when the place of a consumer is taken, which is started and has subscribed to nothing yet."""
    coordinator = consumer._coordinator
    if isinstance(coordinator, GroupCoordinator) and coordinator._group_instance_id is not None:
        coordinator.__class__ = StaticMember
        coordinator.replaced = replaced


def give_place_up(consumer: Any) -> None:
    """Leave the group before a consumer stops: nobody waits for one that ends by itself."""
    if isinstance(consumer._coordinator, GroupCoordinator):
        consumer._coordinator._group_instance_id = None


class _DescribeGroups(Request[DescribeGroupsRequest_v1]):
    """DescribeGroups in version 1: aiokafka 0.14 asks in version 3 and reads the answer as one of version 2."""

    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[DescribeGroupsRequest_v1]) -> DescribeGroupsRequest_v1:
        return request_struct_class(self._groups)


async def members_of(admin: AIOKafkaAdminClient, group: str) -> list[frozenset[str] | None]:
    """Return the topics to which each member of a consumer group subscribes; None while the group is made anew, which
    hides them. A killed member is one until its session ends.

    Raises: KafkaError; BrokerError if nobody knows: a cluster on which no group has been yet makes their topic first.
    """
    for _ in range(TRIES):
        try:
            node = await admin.find_coordinator(group)
            answer = await admin._send_request(_DescribeGroups([group]), node)
            [(error, _, _, _, _, members)] = answer.groups
            if error:
                raise for_code(error)(group)
            return [_topics_of(metadata) for _, _, _, metadata, _ in members]
        except (GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError, GroupLoadInProgressError):
            await asyncio.sleep(TRY_AGAIN_S)
    raise BrokerError(f"the brokers do not say who is in group {group}. Fix: try again")


def _topics_of(metadata: bytes) -> frozenset[str] | None:
    return frozenset(ConsumerProtocolMemberMetadata.decode(metadata).subscription) if metadata else None


FIRST_S, LONGEST_S = 0.5, 30.0
"""Between questions: a topic that is gone for good is asked for as long as the consumer lives."""


def ask_for_missing_topics(consumer: Any) -> None:
    """Let a started consumer, in its own event loop, ask again for a topic that its broker does not know of yet.

    A broker answers from what it has heard, which may be a moment old: of a topic made just now it says that there is
    none. aiokafka's consumer then joins its group with no partition of that topic, and asks again when its metadata
    expire: in five minutes, in which nobody reads. (When it learns of the partitions it joins again by itself.)
    """
    client, loop = consumer._client, asyncio.get_running_loop()
    delay_s = FIRST_S
    question: asyncio.TimerHandle | None = None

    def look(cluster: Any) -> None:
        nonlocal delay_s, question
        if question is not None:
            question.cancel()
            question = None
        if all(cluster.partitions_for_topic(topic) for topic in client._topics):
            delay_s = FIRST_S
            return
        question = loop.call_later(delay_s, client.force_metadata_update)
        delay_s = min(2 * delay_s, LONGEST_S)

    client.cluster.add_listener(look)
