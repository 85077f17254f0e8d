"""`switchgear proxy`: a reverse proxy for model APIs that guards every agent behind it."""

import os
from typing import TYPE_CHECKING, Any

import click

from switchgear._cli.options import fail, store_options
from switchgear._cli.run_options import call_budget_options, check_node, dollars
from switchgear._cli.views.text import clean, say

if TYPE_CHECKING:
    import ssl

    from switchgear._proxy.guard import GuardSettings
    from switchgear._proxy.relay import RelaySettings
    from switchgear._proxy.worker import WorkerSettings

# What the verb needs is imported when it is used.
# ruff: noqa: PLC0415

_SECTION = {
    **{name: name for name in ("host", "port", "budget_node", "allow_unknown_price", "loops")},
    **{name: name for name in ("hint", "workers", "access_log", "tls_cert", "tls_key")},
    "budget_micros": "budget_micros",
    "session_budget": "session_budget_micros",
    "key_budget": "key_budget_micros",
    "price_in": "price_in_micros",
    "price_out": "price_out_micros",
    "timeout": "timeout_s",
    "max_body": "max_body_mb",
    "drain": "drain_s",
    "proxy_token_file": "token_file",
    "hosts": "allow_hosts",
    "insecure_http": "insecure_http",
}
"""The field of the section `proxy` that holds where an option is not given."""


@click.command(short_help="Guard every agent on this machine: a reverse proxy for model APIs.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=4738,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="NAME[:PROTOCOL]=URL",
    help="Forward to URL; NAME is anthropic, openai, google, or your own with one of these as PROTOCOL. Repeatable.",
)
@click.option(
    "--fallback",
    "fallbacks",
    multiple=True,
    metavar="NAME=NAME",
    help="Use the second upstream while the circuit of the first is open. Repeatable, in order.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=VARIABLE",
    help="Send the key in this environment variable to an upstream instead of the client's. Repeatable.",
)
@call_budget_options(
    "Limit for all calls together.",
    "Budget that all calls draw on; with --budget it is opened [default: proxy].",
)
@dollars("--session-budget", help="Limit for each session.")
@dollars("--key-budget", help="Limit for each API key.")
@dollars("--price-in", help="Your price of a million input tokens, for every model.")
@dollars("--price-out", help="Your price of a million output tokens, for every model.")
@click.option(
    "--loops/--no-loops",
    default=True,
    show_default=True,
    help="Detect loops in the tool calls of each session.",
)
@click.option("--hint", is_flag=True, help="Add loop warnings to requests, for the model to read.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes."
)
@click.option(
    "--access-log",
    metavar="FILE",
    help="Append one JSON line per request, without keys or contents; - is standard error.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1.0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest silence of an upstream.",
)
@click.option(
    "--max-body",
    type=click.IntRange(1, 1024),
    default=64,
    show_default=True,
    metavar="MB",
    help="Largest request body.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0.0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long responses may continue after SIGTERM or SIGHUP.",
)
@click.option(
    "--proxy-token-file",
    type=click.Path(dir_okay=False),
    help="File with the token that clients must send; needed for every address but the loopback.",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="TLS certificate.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="TLS private key.")
@click.option(
    "--insecure-http", is_flag=True, help="Listen without TLS on an address that others can reach."
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Accept requests for this host name, besides those of the loopback. Repeatable.",
)
@store_options
def proxy(**given: Any) -> None:
    """Forward requests to model APIs, and guard the agents that send them, until Ctrl-C or SIGTERM.

    Set ANTHROPIC_BASE_URL=http://127.0.0.1:4738, OPENAI_BASE_URL=http://127.0.0.1:4738/v1 or
    GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:4738: nothing is installed in the agent. Circuits stop
    calls to an upstream that fails, budgets are reserved before each call, and an agent that
    repeats itself is stopped with the evidence. SIGHUP restarts the workers without dropping
    a response. Options take precedence over the section 'proxy' of the configuration.
    """
    try:
        import httptools  # noqa: F401
    except ImportError:
        fail("this command needs more packages: python3 -m pip install 'switchgear[proxy]'")
    from switchgear._proxy.supervisor import inherited

    given = _with_section(given)
    settings = _settings(given)
    ours = inherited()
    if ours is not None:
        _work(given, settings, ours)
        return
    _supervise(given, settings)


def _with_section(given: dict[str, Any]) -> dict[str, Any]:
    """The options; those that were not given come from the configuration."""
    from switchgear._cli.context import load_chosen_config
    from switchgear._config.proxy import ProxySection

    section = load_chosen_config().proxy or ProxySection()
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    found = {
        option: getattr(section, field)
        for option, field in _SECTION.items()
        if context.get_parameter_source(option) is default
    }
    return {**given, **found, "section": section}


def _supervise(given: dict[str, Any], settings: "WorkerSettings") -> None:
    from switchgear._proxy.supervisor import WorkerSupervisor, worker_command
    from switchgear._proxy.worker import listen

    host, port = given["host"], given["port"]
    _open_budget(given, settings)
    try:
        listening = listen(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        fail(f"cannot listen on {host}:{port}: {why}; choose another port with --port")
    port = listening.getsockname()[1]
    scheme = "http" if settings.tls is None else "https"
    shown = f"[{host}]" if ":" in host else host

    def ready() -> None:
        base = f"{scheme}://{shown}:{port}"
        say(f"forwarding model calls on {base}; Ctrl-C stops, SIGHUP restarts")
        say(f"  ANTHROPIC_BASE_URL={base}")
        say(f"  OPENAI_BASE_URL={base}/v1")
        say(f"  GOOGLE_GEMINI_BASE_URL={base}")

    count = given["workers"]
    supervisor = WorkerSupervisor(
        worker_command(), listening, count, lambda text: say(clean(text, 500), err=True)
    )
    code = supervisor.run(ready)
    say("stopped")
    raise SystemExit(code)


def _work(given: dict[str, Any], settings: "WorkerSettings", ours: Any) -> None:
    from switchgear._cli.context import open_session
    from switchgear._providers.prices import model_price
    from switchgear._proxy.worker import Worker, run_worker

    model_price("claude-sonnet-4-5")  # the price list is read before the first request
    with open_session(applying=False) as session:
        guard = settings.guard._replace(policy_for=session.config.policy_for)
        session.panel.reload(_policies(session.config.policy_for))
        worker = Worker(session.panel, settings._replace(guard=guard), _access_log(given))
        run_worker(worker, ours.listening, ours.ready, ours.parent)


def _policies(configured: Any) -> Any:
    """The policies of the circuits of the proxy; other circuits are judged as configured."""
    from switchgear._proxy.guard import proxy_policy

    def policy_for(name: str) -> Any:
        if name.startswith(("provider/", "key/")):
            return proxy_policy(name, configured)
        return configured(name)

    return policy_for


def _access_log(given: dict[str, Any]) -> Any:
    import sys

    from switchgear._proxy.access_log import AccessLog

    path = given["access_log"]
    if path is None:
        return None
    return AccessLog(sys.stderr) if path == "-" else AccessLog.to_file(path)


def _open_budget(given: dict[str, Any], settings: "WorkerSettings") -> None:
    """Bring the budget of all calls to `--budget`, before the first call."""
    from switchgear._budgets.tree import Open
    from switchgear._cli.context import open_session

    node, limit = settings.guard.budget_node, given["budget_micros"]
    with open_session() as session:
        if limit is None:
            check_node(session.panel.budgets, node or None)
            return
        for one in session.panel.budgets.apply([Open(node, limit, f"budget/{node}")], who="proxy"):
            if one.is_refused:
                fail(f"budget {one.node}: {one.why}")
            if one.what in {"kept", "closed"}:
                say(clean(f"switchgear: budget {one.node} is {one.what} as it was"), err=True)


def _settings(given: dict[str, Any]) -> "WorkerSettings":
    from switchgear._proxy.http1 import Limits
    from switchgear._proxy.worker import WorkerSettings

    limits = Limits(body_bytes=given["max_body"] * 1024 * 1024)
    return WorkerSettings(
        _relay_settings(given), _guard_settings(given), limits, given["drain"], _tls(given)
    )


def _relay_settings(given: dict[str, Any]) -> "RelaySettings":
    from hashlib import sha256

    from switchgear._cli.serve import read_or_make_token
    from switchgear._config.proxy import is_loopback
    from switchgear._proxy.relay import RelaySettings

    upstreams = _upstreams(given)
    fallbacks = _fallbacks(given, upstreams)
    token = given["proxy_token_file"]
    digest = None if token is None else sha256(read_or_make_token(token).encode()).digest()
    if not is_loopback(given["host"]):
        if digest is None:
            fail(f"--host {given['host']}: others can reach it, so it needs --proxy-token-file")
        if given["tls_cert"] is None and not given["insecure_http"]:
            fail(f"--host {given['host']}: it needs --tls-cert and --tls-key, or --insecure-http")
    return RelaySettings(
        upstreams,
        fallbacks,
        token_digest=digest,
        hosts=frozenset(name.lower() for name in given["hosts"]),
        body_bytes=given["max_body"] * 1024 * 1024,
        read_s=given["timeout"],
        hint=given["hint"],
    )


def _upstreams(given: dict[str, Any]) -> dict[str, Any]:
    from switchgear._providers.upstreams import DEFAULT_URLS, upstream

    section = given["section"]
    variables = {name: choice.key_env for name, choice in section.upstreams.items()}
    for text in given["keys"]:
        name, sign, variable = text.partition("=")
        if not sign:
            fail(f"--key {name}: it must be NAME=VARIABLE, and the variable must hold a key")
        variables[name] = variable
    keys = {name: _key(name, variable) for name, variable in variables.items() if variable}
    found = {name: upstream(name, url) for name, url in DEFAULT_URLS.items()}
    found |= {name: choice.upstream for name, choice in section.upstreams.items()}
    for text in given["upstreams"]:
        left, sign, url = text.partition("=")
        name, _, family = left.partition(":")
        if not sign:
            fail(f"--upstream {text!r}: it must be NAME=URL or NAME:PROTOCOL=URL")
        try:
            made = upstream(name, url, family)
        except ValueError as error:
            fail(f"--upstream: {error}")
        found[made.name] = made
    return {name: each._replace(key=keys.get(name, "")) for name, each in found.items()}


def _key(name: str, variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        fail(f"the key of upstream {name!r}: the variable must hold a key, and {variable} does not")
    return key


def _fallbacks(given: dict[str, Any], upstreams: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    chains: dict[str, tuple[str, ...]] = {}
    for text in given["fallbacks"]:
        first, sign, second = text.partition("=")
        if not sign or first not in upstreams or second not in upstreams or first == second:
            fail(f"--fallback {text!r}: it must be NAME=NAME of two upstreams")
        if upstreams[first].family != upstreams[second].family:
            fail(f"--fallback {text!r}: both must have the same protocol")
        chains[first] = (*chains.get(first, ()), second)
    return {**given["section"].fallbacks, **chains}


def _guard_settings(given: dict[str, Any]) -> "GuardSettings":
    from switchgear._providers.prices import Rates
    from switchgear._proxy.guard import GuardSettings

    node = given["budget_node"] or ("proxy" if given["budget_micros"] is not None else "")
    rates = None
    if (given["price_in"] is None) != (given["price_out"] is None):
        fail("--price-in and --price-out: give both")
    if given["price_in"] is not None:
        sent, said = given["price_in"], given["price_out"]
        rates = Rates(sent, said, sent, sent)
    return GuardSettings(
        budget_node=node,
        session_budget_micros=given["session_budget"],
        key_budget_micros=given["key_budget"],
        rates=rates,
        allow_unknown_price=given["allow_unknown_price"],
        detect_loops=given["loops"],
        owner=f"proxy-{os.getpid()}",
    )


def _tls(given: dict[str, Any]) -> "ssl.SSLContext | None":
    if given["tls_cert"] is None:
        if given["tls_key"] is not None:
            fail("--tls-key: give --tls-cert, too")
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(given["tls_cert"], given["tls_key"])
    except (OSError, ssl.SSLError) as error:
        fail(f"--tls-cert {given['tls_cert']}: it cannot be used: {error}")
    return context
