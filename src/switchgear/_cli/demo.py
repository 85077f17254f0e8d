"""`switchgear demo`: a simulated agent and a provider that fails for a while, with a breaker between them.

Only the outage is staged: the agent sends real HTTP requests to a real server on loopback, through an
ordinary `CircuitBreaker` on the real clock, and the output shows what happens.
"""

import http.server
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Self

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from switchgear import CircuitBreaker, Event, Phase, Rejected
from switchgear._text.formats import duration

STEPS = 60
"""Model calls that the simulated agent needs to finish its task."""
PACE_S = 0.1
OUTAGE_S = (2.0, 7.5)
"""The start and the end of the outage. The first probe is sent during it, the second after it."""

LAMPS = {
    Phase.CLOSED: ("●", "green"),
    Phase.TRIPPING: ("●", "yellow"),
    Phase.OPEN: ("○", "red"),
    Phase.HALF_OPEN: ("◐", "yellow"),
}


class StandInProvider:
    """A model API on loopback that answers 529 during an outage. Started and stopped by `with`."""

    def __init__(self, speed: float) -> None:
        self.requests = 0
        self.doomed = 0
        self._started_s = time.monotonic()
        self._speed = speed
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                down = provider.is_down()
                provider.requests += 1
                provider.doomed += down
                self.send_response(529 if down else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print no access log."""

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/messages"

    def is_down(self) -> bool:
        begin_s, end_s = OUTAGE_S
        return begin_s <= (time.monotonic() - self._started_s) * self._speed < end_s

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class DemoScreen:
    """Draws a line per phase and a mark per call. Prints plain text if the output is not a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._started_s = time.monotonic()
        self._marks = 0
        self._pending: list[Event] = []

    def mark(self, sign: str, style: str) -> None:
        """Draw the mark of one call, then the transitions that it caused."""
        if self._marks >= self.console.width - 25:
            self.console.print()
            self.console.print(" " * 22, end="")
            self._marks = 0
        self._marks += 1
        self.console.print(Text(sign, style), end="", soft_wrap=True)
        while self._pending:
            self._draw(self._pending.pop(0))

    def event(self, event: Event) -> None:
        """Draw a transition; one that a call causes is drawn after the mark of the call."""
        if event.after is Phase.HALF_OPEN:
            self._draw(event)
        else:
            self._pending.append(event)

    def _draw(self, event: Event) -> None:
        """Print the reason of the transition, and start a line for the new phase."""
        wait = event.retry_after_s
        then = "" if wait is None else f"; next try in {duration(wait)}"
        self.console.print()
        self.console.print(Text(f"{'':22}└ {event.reason}{then}", "dim"))
        self.line(event.after)

    def line(self, phase: Phase) -> None:
        lamp, colour = LAMPS[phase]
        seconds = time.monotonic() - self._started_s
        self._marks = 0
        head = Text.assemble(
            f"{seconds:6.1f} s  ", (f"{lamp} {phase.replace('_', '-'):10}", colour), " "
        )
        self.console.print(head, end="")


def run_demo(speed: float) -> int:
    """Run the demonstration. Returns 0 if the circuit opened, probed and closed again."""
    screen = DemoScreen()
    seen: list[Phase] = [Phase.CLOSED]

    def sink(event: Event) -> None:
        seen.append(event.after)
        screen.event(event)

    breaker = CircuitBreaker(
        "provider/stand-in", base_timeout=2.0 / speed, max_timeout=8.0 / speed, sinks=[sink]
    )
    screen.console.print(
        f"A simulated agent needs {STEPS} responses from a model provider and requests them one by one.\n"
        "The provider will go down for a while. 5 failures in a row open the circuit.\n"
    )
    with StandInProvider(speed) as provider:
        screen.line(breaker.state)
        tally = _run_agent(breaker, provider, screen, speed)
    _summary(screen.console, provider, tally)
    worked = seen[-1] is Phase.CLOSED and {Phase.OPEN, Phase.HALF_OPEN} <= set(seen)
    return 0 if worked and tally["answered"] == STEPS else 1


def _run_agent(
    breaker: CircuitBreaker, provider: StandInProvider, screen: DemoScreen, speed: float
) -> Counter[str]:
    """The agent's loop: repeats each step until it succeeds. Counts how the calls ended.

    "avoided" calls were refused during the outage, "missed" calls after it.
    """
    tally: Counter[str] = Counter()
    for _ in range(10 * STEPS):
        try:
            breaker.call(_ask_model, provider.url)
        except Rejected:
            tally["avoided" if provider.is_down() else "missed"] += 1
            screen.mark("-", "dim")
        except urllib.error.URLError:
            screen.mark("x", "red")
        else:
            tally["answered"] += 1
            screen.mark("·", "green")
            if tally["answered"] == STEPS:
                break
        time.sleep(PACE_S / speed)
    return tally


def _ask_model(url: str) -> None:
    request = urllib.request.Request(url, data=b"{}", method="POST")  # noqa: S310  our own loopback
    with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310
        response.read()


def _summary(console: Console, provider: StandInProvider, tally: Counter[str]) -> None:
    late = f"{tally['missed']} refused in the last wait, after the provider had recovered"
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("[green]·[/] answered", f"{tally['answered']} of {STEPS}")
    table.add_row("[red]x[/] failed", f"{provider.doomed} requests, including probes")
    table.add_row("- avoided", f"{tally['avoided']} doomed requests")
    table.add_row("", late)
    console.print("\n")
    console.print(table)


@click.command()
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 20.0),
    default=1.0,
    help="Speed factor: 2 halves all waits.",
)
def demo(speed: float) -> None:
    """Show a breaker that trips and recovers: a simulated agent, and a provider that fails.

    The provider is a real HTTP server on this machine's loopback and the calls are real; nothing
    leaves the machine and no key is needed. Takes about 13 seconds. Exit code 0: the circuit
    opened, admitted a probe and closed as expected; 1: it did not.
    """
    raise SystemExit(run_demo(speed))
