"""The job on a cluster that lets nobody do anything, with what `privstream topics --acls` prints and nothing more.

One worker comes by SCRAM and is killed between two records of a transaction; one by mTLS takes over; one by a bearer
token takes over from that. Then a consumer with the printed rights reads what is public, and tries everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import CloseReason
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest

from agents.kafka.clients import fenced_producer, read_to_end
from agents.kafka.security import security_kwargs
from agents.kafka.topics import admin_client, check_topics, needed_topics
from schemas.config import Config
from schemas.config.server import Kafka
from schemas.errors import AccessError, BrokerError
from schemas.topics import Topics
from tests.commands import invoked
from tests.crash.field import Field, to_toml
from tests.crash.test_crash import ended
from tests.kafka.support import fresh_name, job_config, records_of, stream_table, until
from tests.security.secured import DAY, READER, WORKER, Authority, SecuredBroker, apply_acls, environment, token

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(3)]


DENIED = TopicAuthorizationFailedError.errno


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as running:
        yield running


def printed_acls(config: Config, secured: SecuredBroker, folder: Path) -> list[str]:
    """What an operator reads and runs."""
    path = folder / "operators.toml"
    path.write_text(to_toml(config, bootstrap=secured.broker.address("SCRAM")))
    result = invoked("topics", path, "--acls", env=environment(secured.scram()))
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def as_seen_by(config: Config, settings: dict[str, str]) -> Config:
    kafka = Kafka(**{**config.kafka.model_dump(exclude_none=True), **settings})
    return config.model_copy(update={"kafka": kafka})


async def topics_are_well(config: Config) -> bool:
    """What workers ask before they start; brokers hear of new rules a moment after whoever made them."""
    with contextlib.suppress(BrokerError):
        return await check_topics(config) == []
    return False


async def test_a_job_with_the_printed_rights_lives_through_a_crash_and_its_readers_see_public_topics_only(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    plain = secured.broker.bootstrap
    bearer = tmp_path / "token"
    bearer.write_text(token(WORKER))
    field = Field(plain, tmp_path)
    field.environments = {
        "scram": environment(secured.scram()),
        "mtls": environment(secured.mtls(*secured.authority.sign(WORKER))),
        "oauth": environment(secured.oauth(bearer)),
    }
    try:
        await field.open()
        lines = printed_acls(field.config, secured, tmp_path)
        assert all("--command-config admin.properties" in line for line in lines)
        await apply_acls(plain, lines)
        await until(partial(topics_are_well, as_seen_by(field.config, secured.scram())))
        killed = field.start("scram", failpoint="candidate_appended:3")
        await ended(killed.process.poll)
        assert killed.ended == -signal.SIGKILL, field.logs()
        del field.workers["scram"]
        for name in ("mtls", "oauth"):
            before = max(await field.last_public())
            worker = field.start(name)
            await field.until_public(before + 3)
            if name == "mtls":
                worker.process.terminate()
                await ended(worker.process.poll)
                del field.workers[name]
        await field.settle()
        verdict = await field.verdict()
        assert verdict.kept, f"{verdict}\n" + "\n".join(verdict.notes[:20])
        await reader_sees_public_topics_only(secured, field.config)
    except BaseException:
        print(field.logs())
        raise
    finally:
        await field.close()


async def reader_sees_public_topics_only(secured: SecuredBroker, config: Config) -> None:
    settings = {"bootstrap_servers": secured.broker.address("SCRAM")}
    settings |= security_kwargs(as_seen_by(config, secured.scram(READER)).kafka)
    topics = config.topics
    public = [topic.name for topic in needed_topics(config) if topic.audience == "public"]
    others = [topic.name for topic in needed_topics(config) if topic.audience != "public"]
    assert len(public) == 3 * len(config.streams)
    named = {topics.blocks, topics.releases, topics.bounds, topics.dead_letters, topics.fingerprints, topics.changelog}
    assert {*named, *(s.source for s in config.streams), *(Topics.utility(s.name) for s in config.streams)} <= {*others}

    there = {name: await records_of(secured.broker.bootstrap, name) for name in public}
    seen = await all_of(settings, public, records=sum(map(len, there.values())))
    assert {name: [record.value for record in records] for name, records in there.items()} == {
        name: [record.value for record in seen if record.topic == name] for name in public
    }

    async with administering(settings) as admin:
        may_read = {"fetch": 0, "offsets": 0, "settings": DENIED, "produce": DENIED}
        assert {name: await answers(admin, name) for name in public} == dict.fromkeys(public, may_read)
        hidden = [*others, "__consumer_offsets", "__transaction_state"]
        nothing = dict.fromkeys(may_read, DENIED)
        assert {name: await answers(admin, name) for name in hidden} == dict.fromkeys(hidden, nothing)
        (creation,) = (await admin.create_topics([NewTopic("a-topic-of-the-reader", 1, 1)])).topic_errors
        assert creation[1] == DENIED
        assert set(await admin.list_topics()) == set(public), "not even their names"
        assert await admin.list_consumer_groups() == [(READER, "consumer")]
    for group in (config.job.name, f"{config.job.name}-ingest", "somebody-elses"):
        await refused(GroupAuthorizationFailedError, partial(offsets_of, settings, group))
        await refused(GroupAuthorizationFailedError, partial(join, settings, group, public[0]))
    await refused(
        TransactionalIdAuthorizationFailed, lambda: take(settings, Topics.publisher_id(config.streams[0].name))
    )


async def answers(admin: AIOKafkaAdminClient, topic: str) -> dict[str, int]:
    """Kafka's error code to each way of learning something of a topic, or of writing to it.

    Raw requests: clients wait, and ask again, where they are refused.
    """
    client = admin._client
    node = client.get_random_node()
    fetched = await client.send(node, FetchRequest(0, 0, 1 << 20, 1, [(topic, [(0, 0, 1 << 20)])]))
    offsets = await client.send(node, OffsetRequest(-1, 0, [(topic, [(0, -1)])]))
    produced = await client.send(node, ProduceRequest(None, 1, 10_000, [(topic, [(0, b"")])]))
    (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {
        "fetch": fetched.topics[0][1][0][1],
        "offsets": offsets.topics[0][1][0][1],
        "settings": described.resources[0][0],
        "produce": produced.topics[0][1][0][1],
    }


async def refused(error: Any, attempt: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(error):
        await attempt()


@asynccontextmanager
async def consuming(settings: dict[str, Any], *topics: str, **more: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(*topics, **settings, auto_offset_reset="earliest", **more)
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def administering(settings: dict[str, Any]) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**settings)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def all_of(settings: dict[str, Any], topics: list[str], *, records: int) -> list[Any]:
    """An ordinary consumer, in the group that the printed rights name."""
    found: list[Any] = []
    async with consuming(settings, *topics, group_id=READER, isolation_level="read_committed") as consumer:

        async def more() -> bool:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                found.extend(batch)
            return len(found) >= records

        await until(more)
        await consumer.commit()
    return found


async def offsets_of(settings: dict[str, Any], group: str) -> object:
    async with administering(settings) as admin:
        return await admin.list_consumer_group_offsets(group)


async def join(settings: dict[str, Any], group: str, topic: str) -> object:
    async with consuming(settings, topic, group_id=group) as consumer:
        return await consumer.getone()


async def take(settings: dict[str, Any], transactional_id: str) -> None:
    """Fence a publisher."""
    producer = AIOKafkaProducer(**settings, transactional_id=transactional_id, request_timeout_ms=10_000)
    try:
        await producer.start()
    finally:
        await producer.stop()


# --- Who is refused is told why -----------------------------------------------------------------------------------


class Doors:
    """Ways to come that fail, each by its name."""

    def __init__(self, secured: SecuredBroker, folder: Path) -> None:
        self._secured, self._folder = secured, folder
        other = folder / "other"
        other.mkdir()
        self._stranger = Authority(other)

    def wrong_password(self) -> dict[str, str]:
        return self._secured.scram(password="hunter2")

    def unknown_user(self) -> dict[str, str]:
        return self._secured.scram() | {"sasl_username": "nobody"}

    def other_mechanism(self) -> dict[str, str]:
        return self._secured.scram() | {"bootstrap": self._secured.broker.address("OAUTH")}

    def expired_token(self) -> dict[str, str]:
        file = self._folder / "old"
        file.write_text(token(WORKER, life_s=-60))
        return self._secured.oauth(file)

    def expired_certificate(self) -> dict[str, str]:
        return self._secured.mtls(*self._secured.authority.sign(WORKER, until=-DAY))

    def strangers_certificate(self) -> dict[str, str]:
        return self._secured.mtls(*self._stranger.sign(WORKER))

    def no_certificate(self) -> dict[str, str]:
        address, pem = self._secured.broker.address("MTLS"), str(self._secured.authority.pem)
        return {"bootstrap": address, "security_protocol": "SSL", "ssl_cafile": pem}

    def brokers_authority_unknown(self) -> dict[str, str]:
        return self._secured.scram() | {"ssl_cafile": str(self._stranger.pem)}

    def plain_where_tls_is_spoken(self) -> dict[str, str]:
        return {"bootstrap": self._secured.broker.address("SCRAM")}

    def tls_where_none_is_spoken(self) -> dict[str, str]:
        return self._secured.scram() | {"bootstrap": self._secured.broker.bootstrap}

    def nobody_there(self) -> dict[str, str]:
        return {"bootstrap": "127.0.0.1:9"}

    def no_such_name(self) -> dict[str, str]:
        return {"bootstrap": "nowhere.invalid:9092"}

    def no_rights(self) -> dict[str, str]:
        return self._secured.scram(READER)


WAITING_HELPS = {"nobody_there", "no_such_name", "plain_where_tls_is_spoken", "tls_where_none_is_spoken"}
"""As far as a client can tell."""


@pytest.mark.parametrize(
    ("door", "said"),
    [
        ("wrong_password", "authentication failed|user privstream (SCRAM-SHA-512)|kafka.sasl_password_file"),
        ("unknown_user", "authentication failed|user nobody (SCRAM-SHA-512)|kafka.sasl_username"),
        ("other_mechanism", "authentication failed|does not offer SCRAM-SHA-512|kafka.sasl_mechanism"),
        ("expired_token", "authentication failed|(OAUTHBEARER)|kafka.sasl_token_file|expired"),
        ("expired_certificate", "refused our certificate|valid now|kafka.ssl_certfile"),
        ("strangers_certificate", "refused our certificate|an authority that the brokers trust|kafka.ssl_certfile"),
        ("no_certificate", "refused our certificate|kafka.ssl_certfile"),
        ("brokers_authority_unknown", "certificate that is refused here|kafka.ssl_cafile"),
        ("plain_where_tls_is_spoken", "security_protocol = PLAINTEXT"),
        ("tls_where_none_is_spoken", "security_protocol = SASL_SSL"),
        ("nobody_there", "nothing listens there|kafka.bootstrap"),
        ("no_such_name", "cannot be resolved|kafka.bootstrap"),
        ("no_rights", "AuthorizationFailed|user reader (SCRAM-SHA-512) may not|topics --acls"),
    ],
)
async def test_who_is_refused_is_told_why_and_what_to_do(
    secured: SecuredBroker, tmp_path: Path, door: str, said: str
) -> None:
    config = job_config("127.0.0.1:1", tmp_path, streams=[stream_table(fresh_name("s"))])
    config = as_seen_by(config, getattr(Doors(secured, tmp_path), door)())
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: check_topics(config), lambda: fenced_producer(config.kafka, "an-id"),
    ]  # fmt: skip
    if door != "no_rights":  # there a consumer waits for the topic
        attempts.append(lambda: read_to_end(config.kafka, "a-topic", 0))
    for attempt in attempts:
        with pytest.raises(BrokerError) as caught:
            await attempt()
        assert isinstance(caught.value, AccessError) == (door not in WAITING_HELPS)
        message = str(caught.value)
        assert all(part in message for part in said.split("|")), message
        assert "What to do: " in message
        assert "hunter2" not in message
        assert "\n" not in message
    # aiokafka leaves what it closes to the loop, which must not end before TLS has.
    sockets = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
    await until(lambda: len(sockets) <= 1)


async def test_the_token_file_is_read_again_for_each_connection(secured: SecuredBroker, tmp_path: Path) -> None:
    """A client that lives on: its connections end, as they do when a token expires, and it comes with the new one."""
    file = tmp_path / "token"
    config = job_config("127.0.0.1:1", tmp_path, streams=[stream_table(fresh_name("s"))])
    file.write_text(token(WORKER))
    async with admin_client(as_seen_by(config, secured.oauth(file)).kafka) as admin:
        assert await admin.list_topics() is not None
        file.write_text(token(WORKER, life_s=-60))  # whoever renews it is late
        assert await admin.list_topics() is not None, "a connection keeps what it was made with"
        cut(admin)
        with pytest.raises(KafkaError):
            await admin.list_topics()
        file.write_text("")  # and about to write
        with pytest.raises(KafkaError):
            await admin.list_topics()
        file.write_text(token(WORKER))
        await until(partial(answered, admin))


def cut(admin: AIOKafkaAdminClient) -> None:
    for connection in list(admin._client._conns.values()):
        connection.close(reason=CloseReason.CONNECTION_BROKEN)


async def answered(admin: AIOKafkaAdminClient) -> bool:
    with contextlib.suppress(KafkaError):
        return await admin.list_topics() is not None
    return False
