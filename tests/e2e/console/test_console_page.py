"""The page in a real Chromium: what it shows, how quickly, what it does, and what it must not do.

Screenshots of every view are kept in build/console, for people to look at.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.console import demo_data
from e2e.console.installing import axe, chromium, schemathesis
from switchgear._core.types import Record, Signal
from switchgear._panel.panel import Panel
from timeouts import LIMIT_S

playwright: Any = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: make console"
)
CHROMIUM = chromium()
pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed and could not be"),
]
SHOTS = Path(__file__).parents[3] / "build" / "console"
RUN, BATCH = "20261116-141203-417ab3", "20261116-140000-112ab3"
VIEWS = {
    "now": "/", "circuits": "/circuits", "circuit": "/circuit/provider%2Fanthropic", "sessions": "/sessions?all=1",
    "session": "/session/0199f3d8-loop", "runs": "/runs", "run": f"/run/{RUN}", "fleet": "/fleet",
    "incidents": "/incidents?all=1", "batches": "/batch", "batch": f"/batch/{BATCH}",
}  # fmt: skip
NASTY = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"`${window.hacked=1}javascript:1//'
LIMIT_MS = LIMIT_S * 1000


class Served(NamedTuple):
    root: Path
    url: str
    process: "subprocess.Popen[str]"

    def token(self, role: str) -> str:
        return (self.root / ".switchgear" / f"{role}.token").read_text().strip()

    def panel(self) -> Panel:
        return Panel(f"sqlite:///{self.root}/.switchgear/state.db")


def start(root: Path, port: int = 0) -> Served:
    command = [sys.executable, "-m", "switchgear", "serve", "--port", str(port)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "SWITCHGEAR_RESIDENT": "off"}
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.startswith("console: "):
            return Served(root, line.split()[1].rstrip("/"), process)
    raise AssertionError("the server did not start")


def stop(served: Served) -> None:
    served.process.terminate()
    served.process.wait(LIMIT_S)
    assert served.process.stdout is not None
    served.process.stdout.close()


def filled(root: Path, text: str = "") -> Path:
    (root / ".git").mkdir()
    demo_data.fill(root, text)
    return root


@pytest.fixture(name="served", scope="module")
def a_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start(filled(tmp_path_factory.mktemp("atlas")))
    yield served
    stop(served)


@pytest.fixture(name="browser", scope="module")
def a_browser() -> Iterator[Any]:
    with playwright.sync_playwright() as made:
        browser = made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """One page of a browser, signed in; everything that its console says is kept."""

    def __init__(
        self, browser: Any, served: Served, role: str = "operator", **context: Any
    ) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **context}
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.said: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.url = served.url
        self.page.goto(f"{served.url}/#token={served.token(role)}")
        self.page.wait_for_selector("nav.tabs")

    def _hear(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.said.append(message.text)

    def open(self, path: str) -> Any:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("main h1")
        self.page.wait_for_selector(".lamp.on", state="attached")
        return self.page

    def close(self) -> None:
        self.context.close()


@pytest.fixture(name="tab")
def a_tab(browser: Any, served: Served) -> Iterator[Tab]:
    tab = Tab(browser, served)
    yield tab
    tab.close()
    assert tab.said == []


def trip(panel: Panel, name: str) -> None:
    store = panel.store.inner
    failure = Record(Signal(ok=False, error="connection refused", count=5))
    store.apply(name, panel.policy_of(name), failure, store.now_s())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_drawn_without_errors_and_without_serious_findings(
    browser: Any, served: Served, scheme: str
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    tab = Tab(browser, served, color_scheme=scheme)
    checks = axe().read_text() if axe().exists() else None
    findings = []
    for name, path in VIEWS.items():
        page = tab.open(path)
        page.wait_for_timeout(700)
        page.screenshot(path=SHOTS / f"{name}-{scheme}.png")
        if checks is not None:
            page.evaluate(checks)
            found = page.evaluate(
                "async () => (await axe.run()).violations.filter((each) => ['serious', 'critical'].includes(each.impact)).map((each) => [each.id, each.nodes.slice(0, 3).map((node) => node.html)])"
            )
            findings += [(name, each) for each in found]
    tab.close()
    assert tab.said == []
    assert findings == []
    if checks is None:
        pytest.skip("axe-core could not be installed; the views were drawn without errors")


def test_every_view_fits_on_a_small_screen(browser: Any, served: Served) -> None:
    tab = Tab(browser, served, viewport={"width": 380, "height": 800})
    for name, path in VIEWS.items():
        page = tab.open(path)
        page.wait_for_timeout(400)
        page.screenshot(path=SHOTS / f"{name}-380.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 380, name
    tab.close()
    assert tab.said == []


def test_a_trip_in_another_process_appears_within_a_second(tab: Tab, served: Served) -> None:
    page = tab.open("/")
    with served.panel() as panel:
        began = time.monotonic()
        trip(panel, "provider/trips-now")
        page.wait_for_selector("li.item:has-text('provider/trips-now')", timeout=LIMIT_MS)
        took = time.monotonic() - began
    assert took < float(os.environ.get("SWITCHGEAR_SECOND", "1.0")), took


def test_an_override_from_the_page_needs_a_reason_and_takes_effect_in_the_other_process(
    tab: Tab, served: Served
) -> None:
    with served.panel() as panel:
        breaker = panel.breaker("tool/overridden")
        trip(panel, "tool/overridden")
        page = tab.open("/circuit/tool%2Foverridden")
        page.get_by_role("button", name="Hold closed").click()
        send = page.locator("dialog").get_by_role("button", name="Hold closed")
        page.get_by_label("Your name").fill("ann")
        send.click()
        assert page.locator("dialog").is_visible()  # without a reason nothing is sent
        page.get_by_label("Reason").fill("the provider has recovered")
        send.click()
        page.wait_for_selector("h1 + .badge:has-text('held closed')")
        breaker.refresh()
        assert breaker.call(len, "abc") == 3
        event = panel.events(limit=1)[0].event
        assert (event.by, event.why, event.mode) == (
            "ann",
            "the provider has recovered",
            "held_closed",
        )


def test_a_session_is_resumed_from_the_page(tab: Tab, served: Served) -> None:
    page = tab.open("/session/0199f3d8-loop")
    page.get_by_role("button", name="Resume").click()
    page.get_by_label("Your name").fill("ann")
    page.get_by_label("Reason").fill("the module is installed now")
    page.locator("dialog").get_by_role("button", name="Resume").click()
    page.wait_for_selector(".note.good:has-text('may go on')")
    page.wait_for_selector("h1 + .badge:not(:has-text('stopped'))")
    with served.panel() as panel:
        events = [entry.event for entry in panel.events(limit=10)]
        assert any(
            event.by == "ann" and "the module is installed now" in event.why for event in events
        )


def test_the_read_only_token_shows_everything_and_offers_no_action(
    browser: Any, served: Served
) -> None:
    tab = Tab(browser, served, "read")
    page = tab.open("/circuit/provider%2Fanthropic")
    assert page.get_by_role("group", name="Overrides").count() == 0
    page = tab.open("/session/0199f3d8-loop")
    assert page.get_by_role("group", name="Interventions").count() == 0
    assert page.locator("header").inner_text().find("read-only") > 0
    tab.close()
    assert tab.said == []


def test_search_filters_links_and_keys_work_without_a_mouse(tab: Tab) -> None:
    page = tab.open("/")
    page.keyboard.press("/")
    page.keyboard.type("db/")
    playwright.expect(page.locator("main li.item")).to_have_count(1, timeout=LIMIT_MS)
    assert page.url.endswith("?q=db%2F")
    page.reload()
    playwright.expect(page.locator("main li.item")).to_have_count(1, timeout=LIMIT_MS)
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_selector("h1:has-text('Circuits')")
    page.get_by_label("State").select_option("held_open")
    page.wait_for_selector("tbody tr .badge.held_open")
    page.keyboard.press("Escape")
    page.locator("main").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('/')")
    page.go_back()
    page.wait_for_selector("h1:has-text('Circuits')")
    page.locator("main").focus()
    page.keyboard.press("?")
    page.wait_for_selector("dialog:has-text('Keyboard')")


def test_what_agents_write_stays_text_in_every_view(browser: Any, tmp_path: Path) -> None:
    served = start(filled(tmp_path, NASTY))
    try:
        tab = Tab(browser, served)
        for path in VIEWS.values():
            page = tab.open(path)
            page.wait_for_timeout(400)
            assert page.evaluate("window.hacked") is None
            assert page.locator("main img, main script, main iframe").count() == 0
        assert "<script>" in tab.open(f"/run/{RUN}").inner_text("main")
        tab.close()
        assert tab.said == []
    finally:
        stop(served)


def test_after_a_kill_and_a_restart_the_page_goes_on(browser: Any, tmp_path: Path) -> None:
    served = start(filled(tmp_path))
    port = int(served.url.rpartition(":")[2])
    # While the server is away the browser says so in its console: that is no error of the page.
    tab = Tab(browser, served)
    page = tab.open("/")
    served.process.send_signal(signal.SIGKILL)
    served.process.wait()
    page.wait_for_selector(".note:has-text('Not connected')")
    with served.panel() as panel:
        trip(panel, "provider/while-away")
    again = start(tmp_path, port)
    try:
        page.wait_for_selector(".lamp.on", state="attached")
        page.wait_for_selector("li.item:has-text('provider/while-away')")
    finally:
        tab.close()
        stop(again)
        assert served.process.stdout is not None
        served.process.stdout.close()


def test_a_wrong_token_is_refused_on_the_page(browser: Any, served: Served) -> None:
    page = browser.new_page()
    page.goto(served.url)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("text=not valid here", timeout=LIMIT_MS)
    page.close()


@pytest.mark.skipif(not schemathesis().exists(), reason="Schemathesis could not be installed")
def test_schemathesis_finds_no_server_errors(served: Served) -> None:
    command = [
        str(schemathesis()), "run", f"{served.url}/v1/openapi.json", "-H", f"Authorization: Bearer {served.token('operator')}",
        "--checks", "not_a_server_error", "--max-examples", "10",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, cwd=served.root
    )
    assert done.returncode == 0, done.stdout[-3000:]
