"""Slots of a Redis Cluster move from node to node while turns and edits of a pool go on."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.messages import REPLIES
from tests.support.oracle import Oracle
from tests.support.redis_keys import pool_key, session_key
from tests.support.redis_server import RedisServer, free_port
from tests.support.service import InNamespace, Launch
from tests.support.talk import Talk
from tests.support.waiting import PATIENCE, eventually
from turnwise.service.redis.connection import connect
from turnwise.service.redis.scan import scan_page

SLOTS = 16_384
NODES = 3


class Node(RedisServer):
    """A node of a cluster, by its name there."""

    def __init__(self) -> None:
        self.port = free_port()
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--cluster-enabled", "yes")
        super().__init__(*options)
        self.name = self.command("CLUSTER", "MYID").decode()

    def cluster(self, word: str, *words: object) -> Any:
        return self.command(f"CLUSTER {word}", *map(str, words))

    def keys(self, slot: int) -> list[str]:
        found: list[str] = self.cluster("GETKEYSINSLOT", slot, 1000)
        return found


@pytest.fixture(scope="module")
def _nodes() -> Iterator[list[Node]]:
    with ExitStack() as stack:
        nodes = [Node() for _ in range(NODES)]
        for node in nodes:
            stack.callback(node.remove)
        share = -(-SLOTS // NODES)
        for number, node in enumerate(nodes):
            slots = range(number * share, min((number + 1) * share, SLOTS))
            node.cluster("ADDSLOTS", *slots)
            node.cluster("SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            nodes[0].cluster("MEET", "127.0.0.1", node.port)
        for node in nodes:
            node.wait_for("CLUSTER INFO", b"cluster_state:ok")
            eventually(lambda: len(node.cluster("NODES")) == NODES)  # noqa: B023
        yield nodes


@pytest.fixture
def nodes(_nodes: list[Node]) -> list[Node]:
    """An empty cluster of three primaries."""
    for node in _nodes:
        node.command("FLUSHALL")
    return _nodes


class Move:
    """A slot on its way from the node that has it to another."""

    def __init__(self, nodes: list[Node], key: str) -> None:
        self.slot = nodes[0].cluster("KEYSLOT", key)
        self.source = next(node for node in nodes if self.slot in _slots(node))
        self.target = next(node for node in nodes if node is not self.source)
        self._nodes = nodes
        self.target.cluster("SETSLOT", self.slot, "IMPORTING", self.source.name)
        self.source.cluster("SETSLOT", self.slot, "MIGRATING", self.target.name)

    def carry(self, *keys: str) -> None:
        """Bring keys over; where none is named, all."""
        names = keys or self.source.keys(self.slot)
        where = ("127.0.0.1", str(self.target.port), "", "0", "5000", "REPLACE", "KEYS")
        if names:
            self.source.command("MIGRATE", *where, *names)

    def end(self) -> None:
        for node in (self.target, self.source, *self._nodes):
            node.cluster("SETSLOT", self.slot, "NODE", self.target.name)


def _slots(node: Node) -> set[int]:
    (mine,) = [one for one in node.cluster("NODES").values() if "myself" in one["flags"]]
    ranges = [[int(end) for end in some] for some in mine["slots"]]
    return {slot for some in ranges for slot in range(some[0], some[-1] + 1)}


def test_turns_land_once_while_their_slot_moves(
    launch: Launch, nodes: list[Node], oracle: Oracle
) -> None:
    """A script whose keys lie on two nodes, or are not all there yet, has to wait for the end."""
    url = f"redis://127.0.0.1:{nodes[0].port}"
    one, two = (launch(redis_url=url, redis_cluster=True) for _ in range(2))
    one.fill()
    eventually(lambda: two.http.get("/pools/default").json().get("size") == len(REPLIES))
    talks = [Talk(f"s{number}", oracle) for number in range(2)]
    for number, talk in enumerate((*talks, talks[0])):
        talk.turn(one)
        talk.turn(two)
        move = Move(nodes, session_key("default", talk.session, "meta"))
        talk.try_turn(one, f"Begun {number}.")
        move.carry(move.source.keys(move.slot)[0])
        talk.try_turn(two, f"Halfway {number}.")
        move.carry()
        talk.try_turn(one, f"Carried {number}.")
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: (time.sleep(0.1), move.end()))  # noqa: B023
            talk.turn(two, one)
        assert not move.source.keys(move.slot)
    for talk in talks:
        talk.check(one, two)
    assert all(live.ready for live in (one, two))


def test_sessions_are_listed_and_deleted_on_every_node(launch: Launch, nodes: list[Node]) -> None:
    url = f"redis://127.0.0.1:{nodes[0].port}"
    keys = [InNamespace.KEY]
    live = launch(redis_url=url, redis_cluster=True, api_keys=keys)
    live.app.name = "n"
    ids = {f"u42-{number}" for number in range(12)}
    for each in (*ids, "u43"):
        live.put(f"/sessions/{each}", {})
    assert all(node.command("DBSIZE") for node in nodes)
    listed = live.get("/sessions", prefix="u42-")
    assert (len(listed["ids"]), {*listed["ids"]}, listed["cursor"]) == (12, ids, None)
    assert live.delete("/sessions", prefix="u42-") == {"deleted": 12, "cursor": None}
    assert live.get("/sessions")["ids"] == ["u43"]


@pytest.mark.anyio
async def test_nodes_that_a_client_does_not_know_are_listed_too(nodes: list[Node]) -> None:
    url = f"redis://127.0.0.1:{nodes[0].port}"
    keys = {f"u42-{number}" for number in range(12)}
    async with connect(url, cluster=True, timeout=PATIENCE) as writer:
        for key in keys:
            await writer.set(key, "")
    async with connect(url, cluster=True, timeout=PATIENCE) as client:  # knows no node yet
        for _ in range(2):
            page = await scan_page(client, "u42-*", None)
            assert page
            assert ({*page.keys}, page.cursor) == (keys, None)
            known: dict[str, Any] = client.nodes_manager.nodes_cache  # type: ignore[attr-defined]
            for name in list(known)[1:]:  # as before the cluster grew
                await known.pop(name).disconnect()


def test_a_pool_is_edited_while_its_slot_moves(launch: Launch, nodes: list[Node]) -> None:
    url = f"redis://127.0.0.1:{nodes[0].port}"
    live = launch(redis_url=url, redis_cluster=True)
    live.fill()

    def edit() -> bool:
        answer = live.http.put("/pools/default/candidates", json=[{"text": "One more."}])
        assert answer.status_code in {200, 503}, answer.text
        return answer.is_success

    size = live.get("/pools/default")["size"]
    move = Move(nodes, pool_key("default", "default", "meta"))
    edit()
    move.carry()
    edit()
    move.end()
    eventually(edit)
    other = launch(redis_url=url, redis_cluster=True)
    eventually(lambda: other.http.get("/pools/default").json().get("size") == size + 1)
    eventually(lambda: other.ready)
