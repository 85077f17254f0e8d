"""`switchgear proxy`: a reverse proxy for model APIs that guards every agent behind it."""

import os
import ssl
import sys
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from switchgear._budgets.tree import Open
from switchgear._cli.context import load_chosen_config, open_session
from switchgear._cli.options import fail, store_options
from switchgear._cli.run_options import call_budget_options, check_node, usd_option
from switchgear._cli.serve import read_or_create_token
from switchgear._cli.views.text import clean, say, warn
from switchgear._config.proxy import ProxySection, is_loopback
from switchgear._providers.prices import Rates, model_price
from switchgear._providers.upstreams import DEFAULT_URLS, Upstream, upstream

if TYPE_CHECKING:
    from switchgear._proxy.guard import GuardSettings
    from switchgear._proxy.supervisor import Inherited
    from switchgear._proxy.worker import WorkerSettings

# The packages of the extra `proxy` may be missing.
# ruff: noqa: PLC0415


@click.command()
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=4738,
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
    "Budget from which all calls are reserved; --budget opens it [default: proxy].",
)
@usd_option("--session-budget", "session_budget_micros", help="Limit for each session.")
@usd_option("--key-budget", "key_budget_micros", help="Limit for each API key.")
@usd_option(
    "--price-in",
    "price_in_micros",
    help="Your price of a million input tokens in dollars, for every model.",
)
@usd_option(
    "--price-out",
    "price_out_micros",
    help="Your price of a million output tokens in dollars, for every model.",
)
@click.option(
    "--loops/--no-loops", default=True, help="Detect loops in the tool calls of each session."
)
@click.option("--hint", is_flag=True, help="Add loop warnings to requests, for the model to read.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, help="Number of worker processes."
)
@click.option(
    "--access-log",
    metavar="FILE",
    help="Append one JSON line per request, without keys or contents; - is standard error.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1.0),
    default=600.0,
    metavar="SECONDS",
    help="Seconds to wait for the next byte of an upstream.",
)
@click.option(
    "--max-body",
    "max_body_mb",
    type=click.IntRange(1, 1024),
    default=64,
    metavar="MB",
    help="Largest request body.",
)
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(0.0),
    default=600.0,
    metavar="SECONDS",
    help="Seconds that responses may continue after SIGTERM or SIGHUP.",
)
@click.option(
    "--proxy-token-file",
    "token_file",
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
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Accept requests for this host name, besides those of the loopback. Repeatable.",
)
@store_options
def proxy(
    upstreams: tuple[str, ...], fallbacks: tuple[str, ...], keys: tuple[str, ...], **given: Any
) -> None:
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

    section = _with_options(given)
    found = _upstreams(section, upstreams, keys)
    settings = _settings(section, found, _fallbacks(section, fallbacks, found))
    worker = inherited()
    if worker is not None:  # started by the supervisor
        _work(section, settings, worker)
        return
    _supervise(section, settings)


def _with_options(options: dict[str, Any]) -> ProxySection:
    """The section of the configuration; options on the command line replace its values."""
    source, default = click.get_current_context().get_parameter_source, ParameterSource.DEFAULT
    given = {name: value for name, value in options.items() if source(name) is not default}
    return (load_chosen_config().proxy or ProxySection())._replace(**given)


def _supervise(section: ProxySection, settings: "WorkerSettings") -> None:
    from switchgear._proxy.supervisor import WorkerSupervisor, worker_command
    from switchgear._proxy.worker import listen

    host, port = section.host, section.port
    _open_budget(section, settings)
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

    supervisor = WorkerSupervisor(
        worker_command(), listening, section.workers, lambda text: say(clean(text, 500), err=True)
    )
    code = supervisor.run(ready)
    say("stopped")
    raise SystemExit(code)


def _work(section: ProxySection, settings: "WorkerSettings", inherited: "Inherited") -> None:
    from switchgear._proxy.access_log import AccessLog
    from switchgear._proxy.worker import Worker, run_worker

    model_price("claude-sonnet-4-5")  # loads the price list before the first request
    with open_session(applying=False) as session:
        guard = settings.guard._replace(policy_for=session.config.policy_for)
        session.panel.reload(_policies(session.config.policy_for))
        path, log = section.access_log, None
        if path is not None:
            log = AccessLog(sys.stderr) if path == "-" else AccessLog.to_file(path)
        worker = Worker(session.panel, settings._replace(guard=guard), log)
        run_worker(worker, inherited.listening, inherited.ready, inherited.parent)


def _policies(configured: Any) -> Any:
    """A function from the name of a circuit to its policy: that of the proxy, else the configured one."""
    from switchgear._proxy.guard import proxy_policy

    def policy_for(name: str) -> Any:
        if name.startswith(("provider/", "key/")):
            return proxy_policy(name, configured)
        return configured(name)

    return policy_for


def _open_budget(section: ProxySection, settings: "WorkerSettings") -> None:
    """Open the budget of all calls, or set its limit to `--budget`, before the first call."""
    node, limit = settings.guard.budget_node, section.budget_micros
    with open_session() as session:
        if limit is None:
            check_node(session.panel.budgets, node or None)
            return
        opening = Open(node, limit, f"budget/{node}")
        for change in session.panel.budgets.apply([opening], who="proxy"):
            if change.is_refused:
                fail(f"budget {change.node}: {change.why}")
            if change.what in {"kept", "closed"}:
                warn(f"budget {change.node} is {change.what}: unchanged")


def _settings(
    section: ProxySection, upstreams: dict[str, Upstream], fallbacks: dict[str, tuple[str, ...]]
) -> "WorkerSettings":
    from switchgear._proxy.http1 import Limits
    from switchgear._proxy.relay import RelaySettings
    from switchgear._proxy.worker import WorkerSettings

    token, body_bytes = section.token_file, section.max_body_mb * 1024 * 1024
    digest = None if token is None else sha256(read_or_create_token(token).encode()).digest()
    if not is_loopback(section.host):
        if digest is None:
            fail(f"--host {section.host}: others can reach it, so it needs --proxy-token-file")
        if section.tls_cert is None and not section.insecure_http:
            fail(f"--host {section.host}: it needs --tls-cert and --tls-key, or --insecure-http")
    relay = RelaySettings(
        upstreams,
        fallbacks,
        token_digest=digest,
        hosts=frozenset(name.lower() for name in section.allow_hosts),
        body_bytes=body_bytes,
        read_s=section.timeout_s,
        hint=section.hint,
    )
    guard, limits = _guard_settings(section), Limits(body_bytes=body_bytes)
    return WorkerSettings(relay, guard, limits, section.drain_s, _tls(section))


def _upstreams(
    section: ProxySection, given: tuple[str, ...], given_keys: tuple[str, ...]
) -> dict[str, Upstream]:
    variables = {name: choice.key_env for name, choice in section.upstreams.items()}
    for text in given_keys:
        name, sign, variable = text.partition("=")
        if not sign:
            fail(f"--key {name}: it must be NAME=VARIABLE, and the variable must hold a key")
        variables[name] = variable
    keys = {name: _key(name, variable) for name, variable in variables.items() if variable}
    found = {name: upstream(name, url) for name, url in DEFAULT_URLS.items()}
    found |= {name: choice.upstream for name, choice in section.upstreams.items()}
    for text in given:
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


def _fallbacks(
    section: ProxySection, given: tuple[str, ...], upstreams: dict[str, Upstream]
) -> dict[str, tuple[str, ...]]:
    chains: dict[str, tuple[str, ...]] = {}
    for text in given:
        first, sign, second = text.partition("=")
        if not sign or first not in upstreams or second not in upstreams or first == second:
            fail(f"--fallback {text!r}: it must be NAME=NAME of two upstreams")
        if upstreams[first].family != upstreams[second].family:
            fail(f"--fallback {text!r}: both must have the same protocol")
        chains[first] = (*chains.get(first, ()), second)
    return {**section.fallbacks, **chains}


def _guard_settings(section: ProxySection) -> "GuardSettings":
    from switchgear._proxy.guard import GuardSettings

    node = section.budget_node or ("proxy" if section.budget_micros is not None else "")
    sent, output, rates = section.price_in_micros, section.price_out_micros, None
    if (sent is None) != (output is None):
        fail("--price-in and --price-out: give both")
    if sent is not None and output is not None:
        rates = Rates(sent, output, sent, sent)
    return GuardSettings(
        budget_node=node,
        session_budget_micros=section.session_budget_micros,
        key_budget_micros=section.key_budget_micros,
        rates=rates,
        allow_unknown_price=section.allow_unknown_price,
        detect_loops=section.loops,
        owner=f"proxy-{os.getpid()}",
    )


def _tls(section: ProxySection) -> ssl.SSLContext | None:
    if section.tls_cert is None:
        if section.tls_key is not None:
            fail("--tls-key: give --tls-cert, too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(section.tls_cert, section.tls_key)
    except (OSError, ssl.SSLError) as error:
        fail(f"--tls-cert {section.tls_cert}: it cannot be used: {error}")
    return context
