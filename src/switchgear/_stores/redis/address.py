"""A store's URL: where it is, how to talk to it, and what of it may be shown."""

from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from switchgear._core.errors import StoreUnavailable
from switchgear._stores.url import REDIS, REDIS_URLS

DEFAULT_PORT = 6379


class Address(NamedTuple):
    """What a URL says. Its repr shows no password."""

    label: str
    url: str
    """As the redis package wants it: one host, and only its own schemes."""
    cluster: bool
    more_nodes: tuple[tuple[str, int], ...] = ()
    """Other nodes of a Cluster to begin with: `redis+cluster://one:7000,two:7000`."""
    secret: str | None = None
    namespace: str | None = None
    """What the URL says all keys begin with: `?namespace=NAME`."""

    def __repr__(self) -> str:
        return f"<Address {self.label}>"


def parsed(url: str) -> Address:
    """Read a URL. Raises `ValueError` without showing what it cannot read."""
    url, namespace = _without_namespace(url)
    address = _parsed(url)
    if namespace is None:
        return address
    return address._replace(label=f"{address.label}?namespace={namespace}", namespace=namespace)


def _without_namespace(url: str) -> tuple[str, str | None]:
    """The URL as the redis package may see it, and the option that is ours."""
    rest, mark, query = url.rpartition("?")
    options = query.split("&") if mark else []
    others = [option for option in options if not option.startswith("namespace=")]
    if len(others) == len(options):
        return url, None
    namespace = parse_qs(query, keep_blank_values=True)["namespace"][-1]
    return rest + ("?" + "&".join(others) if others else ""), namespace


def _parsed(url: str) -> Address:
    scheme, found, rest = url.partition("://")
    if not found or scheme not in REDIS:
        raise ValueError(
            f"the URL of a Redis store begins with {url.partition(':')[0]!r}: it must begin with "
            + ", ".join(REDIS_URLS)
        )
    cluster = scheme.endswith("+cluster")
    if scheme == "unix":
        parts = urlsplit(url)
        secret = _secret(parts.password, parts.query)
        return Address(f"unix://{parts.path}", url, cluster=False, secret=secret)
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    query = ""
    if "?" in hosts:
        hosts, _, query = hosts.partition("?")
    first, *others = hosts.split(",")
    tail = slash + path + (f"?{query}" if query else "")
    shown = path.partition("?")[0]
    label = f"{scheme}://{hosts}" + (f"/{shown}" if shown else "")
    try:
        more = tuple(map(_host_and_port, others))
        _host_and_port(first)
    except ValueError:
        raise ValueError(f"the URL {label} has no proper host and port") from None
    if others and not cluster:
        raise ValueError(f"the URL {label} names several hosts: only {scheme}+cluster:// may")
    password = login.partition(":")[2]
    return Address(
        label,
        f"{REDIS[scheme]}://{login}{at}{first}{tail}",
        cluster,
        more,
        _secret(password, (path.partition("?")[2] or query)),
    )


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or DEFAULT_PORT


def _secret(password: str | None, query: str) -> str | None:
    in_query = parse_qs(query).get("password", [""])[0]
    return unquote(password or "") or in_query or None


def missing_package(label: str) -> StoreUnavailable:
    """What is said where the redis package is not installed."""
    return StoreUnavailable(
        label,
        "the Python package 'redis' is not installed",
        "install it: pip install 'switchgear[redis]'",
    )
