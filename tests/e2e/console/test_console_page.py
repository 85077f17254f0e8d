"""The page in a real Chromium: content, speed, actions, and what it must not do.

Screenshots of every view are kept in build/console, for people to look at.
"""

import importlib
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
from e2e.console.installation import axe, chromium, schemathesis
from switchgear._console.requests import add_request, all_requests
from switchgear._core.types import Record, Signal
from switchgear._panel.panel import Panel
from timeouts import LIMIT_S, end, eventually

try:
    playwright: Any = importlib.import_module("playwright.sync_api")
except ImportError:
    playwright = None
CHROMIUM = chromium()
# Each test is skipped, not the file: a run that collects no test would count as failed.
pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(playwright is None, reason="Playwright is not installed: make console"),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make console"),
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
    """One page of a browser, signed in; saves every message of the browser's console."""

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
def test_every_view_is_drawn_without_errors_and_accessibility_findings(
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


def test_the_pictures_of_the_docs_are_drawn(browser: Any, tmp_path: Path) -> None:
    """Pictures for docs/img, in build/console/tour: copy them when the page has changed."""
    served = start(filled(tmp_path))
    tour = SHOTS / "tour"
    tour.mkdir(parents=True, exist_ok=True)
    tab = Tab(browser, served, viewport={"width": 1100, "height": 760})
    try:
        incident = next((tmp_path / ".switchgear" / "incidents").glob("*-1")).name
        views = {
            name: VIEWS[name] for name in ("now", "circuit", "session", "run", "fleet", "batch")
        }
        for name, path in {**views, "incident": f"/incidents/{incident}"}.items():
            page = tab.open(path)
            page.evaluate("document.querySelector('footer').remove()")
            page.wait_for_timeout(700)
            page.screenshot(path=tour / f"console-{name}.png")
    finally:
        tab.close()
        stop(served)
    assert tab.said == []


def test_every_view_fits_on_a_small_screen(browser: Any, served: Served) -> None:
    tab = Tab(browser, served, viewport={"width": 380, "height": 800})
    for name, path in VIEWS.items():
        page = tab.open(path)
        page.wait_for_timeout(400)
        page.screenshot(path=SHOTS / f"{name}-380.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 380, name
    tab.close()
    assert tab.said == []


def test_a_trip_in_another_process_arrives_over_the_event_stream(
    tab: Tab, served: Served, record_property: Any
) -> None:
    """How long it takes is measured, not asserted: this machine may be busy (`bench.console page`)."""
    page = tab.open("/")
    old = page.request.get(
        f"{served.url}/v1/now", headers={"Authorization": f"Bearer {served.token('read')}"}
    ).body()
    page.route("**/v1/now", lambda route: route.fulfill(body=old, content_type="application/json"))
    with served.panel() as panel:
        began = time.monotonic()
        trip(panel, "provider/trips-now")
        page.wait_for_selector("li.item:has-text('provider/trips-now')", timeout=LIMIT_MS)
        took = time.monotonic() - began
    record_property("seconds", took)
    (SHOTS / "trip-seconds.txt").write_text(f"{took:.3f}\n")


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
    page.wait_for_selector(".note.good:has-text('may continue')")
    page.wait_for_selector("h1 + .badge:not(:has-text('stopped'))")
    with served.panel() as panel:
        events = [entry.event for entry in panel.events(limit=10)]
        assert any(
            event.by == "ann" and "the module is installed now" in event.why for event in events
        )


AGENT = """
import json, pathlib, sys, time
prompt = sys.stdin.read()
pathlib.Path("prompts").mkdir(exist_ok=True)
number = len(list(pathlib.Path("prompts").iterdir())) + 1
pathlib.Path("prompts", str(number)).write_text(prompt)
print(json.dumps({"type": "tool", "name": "Edit", "arguments": {"path": "a"}, "ok": True}), flush=True)
while not pathlib.Path(f"go{number}").exists():
    pathlib.Path("beat").write_text(str(time.time()))
    time.sleep(0.05)
pathlib.Path(f"file{number}").write_text("x")
"""


def confirm(page: Any, action: str, why: str, **fields: str) -> None:
    """Choose an action on the page, and confirm it with author and reason."""
    page.get_by_role("group", name="Interventions").get_by_role("button", name=action).click()
    dialog = page.locator("dialog")
    for label, value in {"Your name": "ann", "Reason": why, **fields}.items():
        dialog.get_by_label(label.replace("_", " ")).fill(value)
    dialog.get_by_role("button", name=action).click()
    page.wait_for_selector("dialog", state="detached")


def test_a_run_is_paused_nudged_extended_and_stopped_from_the_page(
    browser: Any, tmp_path: Path
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    served = start(root)
    words = ["run", "do it", "--agent-cmd", f"{sys.executable} -S {agent}", "--no-validate"]
    words += ["--json", "--max-iterations", "1", "--completion-promise", "DONE"]
    run = subprocess.Popen(
        [sys.executable, "-m", "switchgear", *words], cwd=root, stdout=subprocess.DEVNULL
    )
    try:
        tab = Tab(browser, served)
        beat = root / "beat"
        eventually(beat.exists, "the agent is at work")
        page = tab.open("/runs")
        page.locator("tbody a").first.click()
        page.wait_for_selector("h1 + .badge:has-text('running')")
        confirm(page, "Pause", "look first")
        page.wait_for_selector("h1 + .badge:has-text('paused')")
        now = tab.open("/")
        now.wait_for_selector("li.item:has-text('paused')")
        eventually(lambda: _is_still(beat), "the agent does not work")
        now.locator("li.item:has-text('paused') a.name").click()
        page.wait_for_selector("h1:has-text('Run ')")
        confirm(page, "Continue", "go on")
        page.wait_for_selector("h1 + .badge:has-text('running')")
        eventually(lambda: not _is_still(beat), "the agent works again")
        confirm(page, "Nudge", "a hint", Hint_for_the_agent="Read the log first")
        confirm(page, "Extend", "nearly done", Additional_iterations="2")
        (root / "go1").touch()
        prompt = root / "prompts" / "2"
        eventually(lambda: _has(prompt, "Read the log first"), "the second prompt has the hint")
        page.wait_for_selector("td:has-text('worked')")
        page.locator("summary:has-text('Steps')").first.click()
        page.wait_for_selector("pre.log:has-text('[Edit]')")
        confirm(page, "Stop", "enough")
        page.wait_for_selector("h1 + .badge:has-text('interrupted')")
        page.wait_for_selector("dd:has-text('stopped by ann: enough')")
        assert run.wait(LIMIT_S) != 0
        shown = page.locator("h2:has-text('Events') + .scroll").inner_text()
        for action in ("pause: look first", "continue: go on", "nudge: a hint", "abort: enough"):
            assert action in shown
        assert page.get_by_role("group", name="Interventions").count() == 0
        tab.close()
        assert tab.said == []
    finally:
        end(run)
        stop(served)


def _has(file: Path, text: str) -> bool:
    """Whether a file that another process writes contains the text yet."""
    return file.exists() and text in file.read_text()


def _is_still(file: Path) -> bool:
    before = file.read_bytes()
    time.sleep(0.3)
    return file.read_bytes() == before


def test_an_incident_shows_its_evidence_and_is_closed_on_the_page(tab: Tab, served: Served) -> None:
    page = tab.open("/incidents")
    page.locator("main li.item a.name").first.click()
    page.wait_for_selector("h2:has-text('Evidence')")
    page.get_by_label("Interventions").get_by_role("button", name="Close incident").click()
    page.get_by_label("Was the trip right?").select_option("confirmed")
    page.get_by_label("Your name").fill("ann")
    page.get_by_label("Reason").fill("the provider has recovered for good")
    page.locator("dialog").get_by_role("button", name="Close incident").click()
    page.wait_for_selector("dd:has-text('by ann: the provider has recovered for good')")
    with served.panel() as panel:
        events = [entry.event for entry in panel.events(glob="provider/anthropic", limit=5)]
    assert any("the provider has recovered for good" in event.reason for event in events)


def test_a_request_of_an_agent_is_answered_on_the_page(tab: Tab, served: Served) -> None:
    with served.panel() as panel:
        add_request(panel.store.transact, "0199f3d8-loop", "time", 600, "the build is slow")
    page = tab.open("/")
    page.wait_for_selector("h2:has-text('Requests of agents')")
    page.get_by_label("Answer").get_by_role("button", name="Deny").click()
    page.get_by_label("Your name").fill("ann")
    page.get_by_label("Reason").fill("not today")
    page.locator("dialog").get_by_role("button", name="Deny").click()
    page.wait_for_selector("h2:has-text('Requests of agents')", state="detached")
    with served.panel() as panel:
        [row] = all_requests(panel.store.transact)
    assert (row.state, row.by, row.answer) == ("denied", "ann", "not today")


def test_the_score_of_a_session_begins_before_the_page_was_opened(tab: Tab) -> None:
    page = tab.open("/session/0199f3d8-loop")
    page.wait_for_selector("h2:has-text('Score over time') + .chart canvas")
    points = page.request.get(
        f"{tab.url}/v1/sessions/0199f3d8-loop",
        headers={
            "Authorization": f"Bearer {page.evaluate('sessionStorage.getItem(`switchgear.token`)')}"
        },
    ).json()["steps"]
    assert [step["heat"] for step in points][-1] == 1.0
    assert len(points) == 14


def test_the_read_only_token_shows_everything_and_offers_no_action(
    browser: Any, served: Served
) -> None:
    tab = Tab(browser, served, "read")
    page = tab.open("/circuit/provider%2Fanthropic")
    assert page.get_by_role("group", name="Overrides").count() == 0
    page = tab.open("/session/0199f3d8-loop")
    assert page.get_by_role("group", name="Interventions").count() == 0
    page = tab.open("/run/20261116-150000-901fe2")
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


@pytest.mark.parametrize("is_secure", [True, False])
def test_a_link_is_copied_also_where_browsers_have_no_clipboard_for_the_page(
    browser: Any, served: Served, is_secure: bool
) -> None:
    tab = Tab(browser, served, permissions=["clipboard-read", "clipboard-write"])
    page = tab.open("/circuits?state=open")
    page.evaluate("navigator.clipboard.writeText('another text')")
    if not is_secure:
        page.evaluate("navigator.clipboard.writeText = undefined")
    page.get_by_label("Copy link to this view").click()
    page.wait_for_selector("button:has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == f"{tab.url}/circuits?state=open"
    tab.close()
    assert tab.said == []


def test_text_from_agents_is_escaped_in_every_view(browser: Any, tmp_path: Path) -> None:
    served = start(filled(tmp_path, NASTY))
    try:
        tab = Tab(browser, served, viewport={"width": 380, "height": 800})
        for path in VIEWS.values():
            page = tab.open(path)
            page.wait_for_timeout(400)
            assert page.evaluate("window.hacked") is None
            assert page.evaluate("document.documentElement.scrollWidth") <= 380, path
            assert page.locator("main img, main script, main iframe").count() == 0
        page = tab.open(f"/run/{RUN}")
        page.locator("summary:has-text('Steps')").first.click()
        page.wait_for_selector("pre.log:has-text('<script>')")
        assert page.evaluate("window.hacked") is None
        tab.close()
        assert tab.said == []
    finally:
        stop(served)


def test_after_a_kill_and_a_restart_the_page_continues(browser: Any, tmp_path: Path) -> None:
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
        store, calm = panel.store.inner, "tool/calm-while-away"  # no event tells of this one
        store.apply(calm, panel.policy_of(calm), Record(Signal(ok=True)), store.now_s())
    again = start(tmp_path, port)
    try:
        page.wait_for_selector(".lamp.on", state="attached")
        page.wait_for_selector("li.item:has-text('provider/while-away')")
        page.keyboard.press("g")
        page.keyboard.press("c")  # the same page: what it knows of all circuits is new as well
        page.wait_for_selector("tbody a:has-text('tool/calm-while-away')")
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
