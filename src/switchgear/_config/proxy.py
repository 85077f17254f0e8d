"""The section `proxy`: the defaults of `switchgear proxy`."""

from collections.abc import Callable, Mapping
from functools import wraps
from ipaddress import ip_address
from typing import Any, NamedTuple

from switchgear._budgets.tree import checked_path
from switchgear._config.parts import construct, fields_of
from switchgear._config.problems import ConfigNode, Report, shown, suggestion
from switchgear._core import values
from switchgear._providers.upstreams import DEFAULT_URLS, Upstream, upstream

DEFAULT_PORT = 4738
_PATHS = ("access_log", "token_file", "tls_cert", "tls_key")
_AMOUNTS = (
    *("budget_micros", "session_budget_micros", "key_budget_micros"),
    *("price_in_micros", "price_out_micros"),
)
_FLAGS = ("allow_unknown_price", "loops", "hint", "insecure_http")


class UpstreamChoice(NamedTuple):
    """An upstream in the file, and the environment variable with its key."""

    upstream: Upstream
    key_env: str | None = None


class ProxySection(NamedTuple):
    """The section `proxy`. Amounts in millionths of a dollar, prices for a million tokens."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    workers: int = 1
    budget_micros: int | None = None
    budget_node: str | None = None
    session_budget_micros: int | None = None
    key_budget_micros: int | None = None
    price_in_micros: int | None = None
    price_out_micros: int | None = None
    allow_unknown_price: bool = False
    loops: bool = True
    hint: bool = False
    access_log: str | None = None
    timeout_s: float = 600.0
    max_body_mb: int = 64
    drain_s: float = 600.0
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure_http: bool = False
    allow_hosts: tuple[str, ...] = ()
    upstreams: Mapping[str, UpstreamChoice] = {}
    fallbacks: Mapping[str, tuple[str, ...]] = {}


@wraps(ProxySection, updated=())
def proxy_section(**given: Any) -> ProxySection:
    """A checked section. Raises ValueError."""
    made = ProxySection(**given)
    for field, least, most in (("port", 0, 65_535), ("workers", 1, 64), ("max_body_mb", 1, 1024)):
        if values.check_int(_key_name(field), getattr(made, field), least=least) > most:
            raise ValueError(f"{_key_name(field)} is {given[field]!r}: it must be at most {most}")
    for field in _AMOUNTS:
        if getattr(made, field) is not None:
            values.check_int(_key_name(field), given[field], least=0 if "price" in field else 1)
    for field in _FLAGS:
        values.check_bool(_key_name(field), getattr(made, field))
    for field in ("host", "budget_node", *_PATHS):
        if getattr(made, field) is not None:
            values.check_text(_key_name(field), given.get(field, made.host))
    values.check_at_least(_key_name("timeout_s"), made.timeout_s, 1.0)
    values.check_at_least(_key_name("drain_s"), made.drain_s, 0.0)
    if not isinstance(made.allow_hosts, list | tuple):
        raise ValueError(f"{_key_name('allow_hosts')} is {made.allow_hosts!r}: it must be a list")
    for name in made.allow_hosts:
        values.check_text(_key_name("allow_hosts"), name)
    _check_together(made)
    return made._replace(allow_hosts=tuple(made.allow_hosts))


def _check_together(made: ProxySection) -> None:
    if made.budget_node is not None:
        checked_path(made.budget_node)
    for one, other in (
        ("price_in_micros", "price_out_micros"),
        ("price_out_micros", "price_in_micros"),
        ("tls_key", "tls_cert"),
    ):
        if getattr(made, one) is not None and getattr(made, other) is None:
            raise ValueError(f"{_key_name(one)} is given: {other} must be given, too")
    if not is_loopback(made.host):
        where = f"{_key_name('host')} is {made.host!r}: others can reach it, so"
        if made.token_file is None:
            raise ValueError(f"{where} token_file must be given")
        if made.tls_cert is None and not made.insecure_http:
            raise ValueError(f"{where} tls_cert must be given, or insecure_http must be true")


def _key_name(field: str) -> str:
    return f"ProxySection.{field}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_proxy(
    node: ConfigNode, report: Report, path_of: Callable[[str], str]
) -> ProxySection | None:
    """The section; `None` if there is none or it has problems, which are reported."""
    if node.value is None:
        return None
    nodes = report.mapping(node, fields_of(proxy_section))
    upstreams = _upstreams(nodes.pop("upstreams", ConfigNode(None)), report)
    fallbacks = _fallbacks(nodes.pop("fallbacks", ConfigNode(None)), upstreams, report)
    given = {name: child.plain() for name, child in nodes.items() if child.value is not None}
    made = construct(proxy_section, given, nodes, node, report)
    if made is None:
        return None
    paths: dict[str, Any] = {
        name: path_of(value) for name in _PATHS if (value := getattr(made, name)) not in {None, "-"}
    }
    return made._replace(upstreams=upstreams, fallbacks=fallbacks, **paths)


def _upstreams(node: ConfigNode, report: Report) -> dict[str, UpstreamChoice]:
    found: dict[str, UpstreamChoice] = {}
    for name, child in report.mapping(node).items():
        nodes = report.mapping(child, ("url", "protocol", "key_env"))
        texts = {}
        for key, each in nodes.items():
            if isinstance(each.value, str) and each.value.strip():
                texts[key] = each.value
            else:
                report.add(each, f"is {shown(each.value)}: it must be a text that is not empty")
        url = texts.get("url") or DEFAULT_URLS.get(name)
        if url is None:
            if "url" not in nodes:
                report.add(child, "needs the key 'url'")
            continue
        try:
            made = upstream(name, url, texts.get("protocol", ""))
        except ValueError as error:
            report.add(nodes.get("url", child), str(error))
            continue
        found[made.name] = UpstreamChoice(made, texts.get("key_env"))
    return found


def _fallbacks(
    node: ConfigNode, upstreams: Mapping[str, UpstreamChoice], report: Report
) -> dict[str, tuple[str, ...]]:
    families = {**{name: name for name in DEFAULT_URLS}}
    families |= {name: choice.upstream.family for name, choice in upstreams.items()}
    found: dict[str, tuple[str, ...]] = {}
    for name, child in report.mapping(node).items():
        if name not in families:
            report.add(child, f"is the chain of an unknown upstream; {suggestion(name, families)}")
            continue
        chain: list[str] = []
        for item in report.items(child):
            other = item.value
            if not isinstance(other, str) or other not in families:
                hint = suggestion(str(other), families)
                report.add(item, f"is {shown(other)}: it must be an upstream; {hint}")
            elif other == name or other in chain:
                report.add(item, f"is {other!r}, which is in the chain already")
            elif families[other] != families[name]:
                report.add(
                    item,
                    f"is {other!r}: it has the protocol {families[other]}, not {families[name]}",
                )
            else:
                chain.append(other)
        found[name] = tuple(chain)
    return found
