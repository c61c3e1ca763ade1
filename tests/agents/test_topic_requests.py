"""Topics of a wide job are created by several requests: a controller refuses one that makes too much."""

from __future__ import annotations

from itertools import pairwise

from aiokafka.admin import NewTopic
from hypothesis import given
from hypothesis import strategies as st

from agents.kafka.topics import REQUEST_RECORDS, requests_of


@given(st.lists(st.tuples(st.integers(1, 2 * REQUEST_RECORDS), st.integers(0, 9)), max_size=60))
def test_each_topic_is_in_one_request_and_no_request_makes_too_much(shapes: list[tuple[int, int]]) -> None:
    topics = [
        NewTopic(f"t{at}", partitions, 1, topic_configs={str(name): "1" for name in range(settings)})
        for at, (partitions, settings) in enumerate(shapes)
    ]
    found = list(requests_of(topics))
    assert [topic for some in found for topic in some] == topics
    for some in found:
        made = sum(1 + topic.num_partitions + len(topic.topic_configs) for topic in some)
        assert len(some) == 1 or made <= REQUEST_RECORDS
    for some, after in pairwise(found):
        made = sum(1 + topic.num_partitions + len(topic.topic_configs) for topic in (*some, after[0]))
        assert made > REQUEST_RECORDS, "another request for what there is room for"
