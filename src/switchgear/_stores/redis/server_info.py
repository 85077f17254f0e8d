"""What `switchgear doctor` shows of a server: versions, sizes, and settings that endanger circuits."""

from typing import Any

from switchgear._stores.redis.script import Names


def facts(client: Any, names: Names, *, cluster: bool) -> dict[str, str]:
    """What the node that holds our keys says of itself."""
    target: dict[str, Any] = {}
    if cluster:
        target["target_nodes"] = client.get_node_from_key(names.root)
    info = client.info(**target)
    valkey = info.get("valkey_version")
    shown = {
        "server": f"valkey {valkey}" if valkey else f"redis {info.get('redis_version', '?')}",
        "mode": "cluster" if info.get("cluster_enabled") else str(info.get("redis_mode", "?")),
        "role": str(info.get("role", "?")),
        "replicas": str(info.get("connected_slaves", "?")),
        "memory": _memory(info),
        "eviction": _eviction(str(info.get("maxmemory_policy", "?")), info.get("maxmemory", 0)),
        "persistence": _persistence(client, info, target),
        "events": str(client.xlen(names.log)),
        "namespace": names.namespace,
    }
    if cluster:
        shown["primaries"] = str(len(client.get_primaries()))
    return shown


def _memory(info: dict[str, Any]) -> str:
    used, limit = info.get("used_memory_human", "?"), info.get("maxmemory", 0)
    return f"{used} of {info.get('maxmemory_human', limit)}" if limit else f"{used}, no limit"


def _eviction(policy: str, limit: int) -> str:
    if policy.startswith("allkeys") and limit:
        return f"{policy}: WARNING, a full server forgets circuits, open ones too; use noeviction"
    if policy.startswith("volatile") and limit:
        return f"{policy}: WARNING, a full server forgets closed circuits; use noeviction"
    return policy


def _persistence(client: Any, info: dict[str, Any], target: dict[str, Any]) -> str:
    if info.get("aof_enabled"):
        return "append-only file"
    try:
        saves = client.config_get("save", **target).get("save")
    except Exception:  # noqa: BLE001  many servers do not tell
        return "snapshots, if any: the server does not say"
    if saves:
        return f"snapshots ({saves}): a crash loses what came after the last one"
    return "WARNING, none: a restart forgets every circuit"
