"""A Cluster of three primaries, with replicas on demand, made of real servers."""

from collections.abc import Iterator
from contextlib import contextmanager

from servers.server import Server, eventually

SLOTS = 16_384


class Cluster:
    """The nodes; the first three are primaries, the others replicas of the first."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def holder(self, key: str) -> Server:
        """The node that takes writes for this key now."""
        for node in self.nodes:
            if node.say("SET", key, "x").startswith("+OK"):
                node.say("DEL", key)
                return node
        raise AssertionError("nobody holds it")

    def move(self, key: str) -> None:
        """Give the slot of this key, with all its keys, to another primary."""
        old = self.holder(key)
        new = next(node for node in self.nodes if node is not old)
        slot = old.say("CLUSTER", "KEYSLOT", key).strip().lstrip(":")
        before, after = (node.say("CLUSTER", "MYID").split("\r\n")[1] for node in (old, new))
        assert new.say("CLUSTER", "SETSLOT", slot, "IMPORTING", before).startswith("+OK")
        assert old.say("CLUSTER", "SETSLOT", slot, "MIGRATING", after).startswith("+OK")
        keys = old.say("CLUSTER", "GETKEYSINSLOT", slot, "1000").split("\r\n")[2::2]
        target = ("127.0.0.1", str(new.port), "", "0", "5000")
        assert old.say("MIGRATE", *target, "KEYS", *keys).startswith("+OK")
        for node in self.nodes:
            assert node.say("CLUSTER", "SETSLOT", slot, "NODE", after).startswith("+OK")


@contextmanager
def running_cluster(replicas: int = 0) -> Iterator[Cluster]:
    """Three primaries that share the slots, and replicas of each."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
    nodes = [Server(*options) for _ in range(3 * (1 + replicas))]
    try:
        for node in nodes:
            node.start()
        _join(nodes)
        yield Cluster(nodes)
    finally:
        for node in nodes:
            node.stop()


def _join(nodes: list[Server]) -> None:
    primaries, others = nodes[:3], nodes[3:]
    for index, node in enumerate(primaries):
        share = range(SLOTS * index // 3, SLOTS * (index + 1) // 3)
        assert node.say("CLUSTER", "ADDSLOTS", *map(str, share)).startswith("+OK")
        node.say("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
    for node in nodes[1:]:
        assert node.say("CLUSTER", "MEET", "127.0.0.1", str(nodes[0].port)).startswith("+OK")
    eventually(lambda: all(_knows(node, len(nodes)) for node in nodes), "the nodes have met")
    for index, node in enumerate(others):
        primary = primaries[index % 3].say("CLUSTER", "MYID").split("\r\n")[1]
        assert node.say("CLUSTER", "REPLICATE", primary).startswith("+OK")
    eventually(lambda: all(map(_is_ok, nodes)), "the Cluster is up")
    eventually(lambda: all(map(_is_in_step, others)), "the replicas are in step")


def _knows(node: Server, number: int) -> bool:
    return f"cluster_known_nodes:{number}" in node.say("CLUSTER", "INFO")


def _is_ok(node: Server) -> bool:
    return "cluster_state:ok" in node.say("CLUSTER", "INFO")


def _is_in_step(node: Server) -> bool:
    return "master_link_status:up" in node.say("INFO", "replication")
