"""`switchgear wrap` around unmodified scripts, with the real SDKs, against a scripted API on loopback."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
pytest.importorskip("anthropic")

from servers.model_api import ModelApi, Reply, model_api
from switchgear import Panel
from timeouts import LIMIT_S

CHAT = """
import os, sys
from openai import OpenAI
client = OpenAI(base_url=os.environ["URL"] + "/v1", api_key="sk-test", max_retries=2)
def ask():
    messages = [{"role": "user", "content": "Hello"}]
    return client.chat.completions.create(model="gpt-4.1", messages=messages, max_tokens=100)
"""
COST_MICROS = 1248
"""What one call of `ask` costs: 1,000 tokens in, 768 of them from the cache, 50 out."""


@pytest.fixture
def api() -> Iterator[ModelApi]:
    with model_api() as running:
        yield running


class Wrapped(subprocess.CompletedProcess[str]):
    report: dict[str, Any]


Wrap = Callable[..., Wrapped]


@pytest.fixture
def wrap(api: ModelApi, tmp_path: Path) -> Wrap:
    """Runs a script under `switchgear wrap`, in an empty project."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()

    def run(
        script: str,
        *options: str,
        words: tuple[str, ...] = (),
        python: tuple[str, ...] = (sys.executable,),
        **variables: str,
    ) -> Wrapped:
        path = project / "agent.py"
        path.write_text(script, encoding="utf-8")
        kept = {name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME") if name in os.environ}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "switchgear", "wrap"),
                *("--report", str(tmp_path / "report.json")),
                *(*options, "--", *python, str(path), *words),
            ],
            cwd=project,
            env={**kept, "HOME": str(home), "URL": api.url, "SWITCHGEAR_TRUST": "1", **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        wrapped = Wrapped(done.args, done.returncode, done.stdout, done.stderr)
        report = tmp_path / "report.json"
        wrapped.report = json.loads(report.read_text()) if report.exists() else {}
        return wrapped

    return run


def test_a_script_runs_unchanged_and_its_calls_are_counted_and_priced(
    wrap: Wrap, api: ModelApi
) -> None:
    script = f"""{CHAT}
from anthropic import Anthropic
print(ask().choices[0].message.content)
claude = Anthropic(base_url=os.environ["URL"], api_key="sk-test")
messages = [{{"role": "user", "content": "Hello"}}]
with claude.messages.stream(model="claude-sonnet-4-6", max_tokens=64, messages=messages) as stream:
    print(len(stream.get_final_message().content))
"""
    done = wrap(script)
    assert (done.returncode, done.stdout) == (0, "Hello\n1\n"), done.stderr
    assert "2 model calls; 0 failed; 0 refused" in done.stderr
    assert done.report["reason"] == "exited"
    assert done.report["calls"] == 2
    assert done.report["cost_micros"] > COST_MICROS
    assert len(done.report["models"]) == 2
    assert len(api.received) == 2


@pytest.mark.parametrize("code", [0, 3, 42])
def test_the_scripts_own_exit_code_is_kept(wrap: Wrap, code: int) -> None:
    done = wrap("import sys; sys.exit(int(sys.argv[1]))", words=(str(code),))
    assert done.returncode == code
    assert done.report["command_exit_code"] == code


def test_a_script_that_a_signal_ends_has_the_exit_code_of_a_shell(wrap: Wrap) -> None:
    done = wrap("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == 137
    assert done.report["command_exit_code"] == -9


def test_a_used_up_budget_refuses_calls_and_is_the_exit_code(wrap: Wrap, api: ModelApi) -> None:
    # Reserved for each call: 100 tokens out for $0.0008, and a few in.
    done = wrap(
        f"{CHAT}\nfor _ in range(50): ask(); print('asked', flush=True)", "--budget", "0.01"
    )
    asked = done.stdout.count("asked")
    assert done.returncode == 11, done.stderr
    assert 5 <= asked <= 8
    assert len(api.received) == asked
    assert done.report["cost_micros"] == asked * COST_MICROS <= 10_000
    assert "Switchgear refused this call: budget" in done.stderr
    assert done.report["reason"] == "budget"


def test_a_loop_of_failing_calls_is_stopped(wrap: Wrap, api: ModelApi) -> None:
    api.always = Reply(503)
    script = f"""{CHAT}
client = client.with_options(max_retries=0)
while True:
    try:
        ask()
    except Exception as error:
        print(type(error).__name__, flush=True)
"""
    done = wrap(script, "--max-refusals", "7")
    assert done.returncode == 10, done.stderr
    assert len(api.received) == 5
    assert done.report["refused"] >= 7
    assert done.report["reason"] == "circuit_breaker"
    assert "5 failures in a row" in done.stderr


def test_a_script_that_handles_a_refusal_keeps_its_exit_code(wrap: Wrap, api: ModelApi) -> None:
    api.always = Reply(503)
    script = f"""{CHAT}
from openai import APIStatusError
client = client.with_options(max_retries=0)
for _ in range(6):
    try:
        ask()
    except APIStatusError as error:
        last = error
print(last.status_code, "Switchgear" in str(last))
"""
    done = wrap(script)
    assert (done.returncode, done.stdout) == (0, "503 True\n"), done.stderr
    assert len(api.received) == 5


def test_child_processes_share_circuits_and_budget(
    wrap: Wrap, api: ModelApi, tmp_path: Path
) -> None:
    api.always = Reply(503)
    child = f"""{CHAT}
client = client.with_options(max_retries=0)
for _ in range(3):
    try:
        ask()
    except Exception as error:
        print("refused" if "Switchgear" in str(error) else "failed", flush=True)
"""
    (tmp_path / "child.py").write_text(child)
    script = """
import subprocess, sys
for _ in range(3):
    subprocess.run([sys.executable, sys.argv[1]], check=True)
"""
    done = wrap(script, words=(str(tmp_path / "child.py"),))
    said = done.stdout.split()
    # The fifth failure opens the circuit within 0.1 s, when the others' reports are in: the second
    # child may make one more call, the third none.
    assert said[:5] == ["failed"] * 5, done.stderr
    assert said[6:] == ["refused"] * 3
    assert len(api.received) == said.count("failed")
    assert done.report["processes"] == 4


def test_a_forked_child_is_guarded(wrap: Wrap, api: ModelApi) -> None:
    script = f"""{CHAT}
ask()
child = os.fork()
if not child:
    client = OpenAI(base_url=os.environ["URL"] + "/v1", api_key="sk-test")
    ask()
    os._exit(0)
os.waitpid(child, 0)
"""
    done = wrap(script, "--budget", "1")
    assert done.returncode == 0, done.stderr
    assert done.report["calls"] == 2
    assert done.report["cost_micros"] == 2 * COST_MICROS


def test_the_sitecustomize_of_the_user_still_runs(
    wrap: Wrap, api: ModelApi, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.OWN = __name__, __file__")
    script = f"""{CHAT}
import sitecustomize
ask()
print(OWN[0], OWN[1] == sitecustomize.__file__, any("wrap_site" in entry for entry in sys.path))
"""
    done = wrap(script, PYTHONPATH=str(own))
    assert done.stdout == "sitecustomize True False\n", done.stderr
    assert done.report["calls"] == 1


def test_async_clients_are_guarded(wrap: Wrap, api: ModelApi) -> None:
    script = """
import asyncio, os
from openai import AsyncOpenAI
async def main():
    async with AsyncOpenAI(base_url=os.environ["URL"] + "/v1", api_key="sk-test") as client:
        asked = (client.responses.create(model="gpt-5", input="Hello") for _ in range(4))
        return len(await asyncio.gather(*asked))
print(asyncio.run(main()))
"""
    done = wrap(script)
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    assert done.report["calls"] == 4


def test_google_is_guarded_on_both_sides(wrap: Wrap, api: ModelApi) -> None:
    pytest.importorskip("google.genai")
    script = """
import asyncio, os
from google import genai
client = genai.Client(api_key="key", http_options={"base_url": os.environ["URL"]})
print(client.models.generate_content(model="gemini-2.5-flash", contents="Hello").text)
async def main():
    found = await client.aio.models.generate_content(model="gemini-2.5-flash", contents="Hello")
    await client.aio.aclose()
    return found.text
print(asyncio.run(main()))
"""
    done = wrap(script)
    assert (done.returncode, done.stdout) == (0, "lo\nlo\n"), done.stderr
    assert done.report["calls"] == 2


def test_requests_to_other_apis_pass_unguarded(wrap: Wrap, api: ModelApi) -> None:
    api.always = Reply(503)
    library = "httpx2" if importable("httpx2") else "httpx"
    script = f"""
import os, {library} as http
with http.Client(base_url=os.environ["URL"]) as client:
    print(*(client.get("/other").status_code for _ in range(8)))
"""
    done = wrap(script)
    assert done.stdout.split() == ["503"] * 8, done.stderr
    assert done.report["calls"] == 0


def importable(name: str) -> bool:
    found = subprocess.run(
        [sys.executable, "-c", f"import {name}"], check=False, capture_output=True
    )
    return found.returncode == 0


def test_a_fallback_model_answers(wrap: Wrap, api: ModelApi) -> None:
    api.models_down = {"gpt-4.1"}
    done = wrap(f"{CHAT}\nprint(ask().choices[0].message.content)", "--fallback", "gpt-4.1-mini")
    assert (done.returncode, done.stdout) == (0, "Hello\n"), done.stderr
    assert [received.payload["model"] for received in api.received] == ["gpt-4.1", "gpt-4.1-mini"]


def test_a_guard_inside_the_script_still_works(wrap: Wrap, api: ModelApi) -> None:
    script = f"""{CHAT}
from switchgear import Panel
from switchgear.integrations.openai import guard
panel = Panel("memory:")
guard(client, panel=panel, key="mine")
ask()
print(panel.breaker("mine").totals.succeeded)
"""
    done = wrap(script)
    assert done.stdout == "1\n", done.stderr
    assert done.report["calls"] == 1


def test_an_environment_without_switchgear_is_guarded_too(wrap: Wrap, api: ModelApi) -> None:
    # A folder of packages on PYTHONPATH has no effect of its .pth files: the editable install is not seen.
    packages = sysconfig.get_paths()["purelib"]
    script = f"{CHAT}\nask(); print('switchgear' in sys.modules)"
    bare = (sys.executable, "-S")
    probe = subprocess.run(
        [*bare, "-c", "import switchgear"], capture_output=True, check=False, cwd="/"
    )
    if probe.returncode == 0:
        pytest.skip("switchgear is importable without site packages")
    starts = "import sys, runpy, sitecustomize; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = wrap(script, python=(*bare, "-c", starts), PYTHONPATH=packages)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert done.report["calls"] == 1


def test_a_process_without_the_guard_is_reported(wrap: Wrap) -> None:
    done = wrap("print('hello')", python=(sys.executable, "-I"))
    assert done.returncode == 0
    assert "no Python process was guarded" in done.stderr


def test_a_command_that_cannot_be_started_is_reported(wrap: Wrap) -> None:
    done = wrap("", python=("no-such-program",))
    assert done.returncode == 16
    assert "no-such-program: No such file or directory" in done.stderr


def test_a_time_limit_stops_the_script_and_its_children(wrap: Wrap) -> None:
    script = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])
"""
    done = wrap(script, "--timeout", "1s")
    assert done.returncode == 12, done.stderr
    assert done.report["reason"] == "timeout"


def test_an_unknown_price_is_refused_under_a_budget(wrap: Wrap, api: ModelApi) -> None:
    script = f"""{CHAT}
client.chat.completions.create(model="no-such-model", messages=[])
"""
    done = wrap(script, "--budget", "1")
    assert done.returncode == 11
    assert "has no price for the model 'no-such-model'" in done.stderr
    assert api.received == []
    assert wrap(script, "--budget", "1", "--allow-unknown-price").returncode == 0


def test_a_store_that_processes_cannot_share_is_refused(wrap: Wrap) -> None:
    done = wrap("print('started')", "--store", "memory:")
    assert (done.returncode, done.stdout) == (2, "")
    assert "processes cannot share it" in done.stderr


@pytest.mark.parametrize(
    "option", [("--fallback", ""), ("--key", "{bogus}"), ("--key", "{model}-{bogus}")]
)
def test_an_option_that_no_process_could_use_is_refused(
    wrap: Wrap, option: tuple[str, str]
) -> None:
    done = wrap("print('started')", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option[0]} is {option[1]!r}" in done.stderr


def test_streams_that_break_off_open_the_circuit(wrap: Wrap, api: ModelApi) -> None:
    api.always = Reply(cut_at=300)
    script = f"""{CHAT}
messages = [{{"role": "user", "content": "Hello"}}]
for _ in range(6):
    try:
        list(client.chat.completions.create(model="gpt-4.1", messages=messages, stream=True))
        print("read")
    except Exception as error:
        print(type(error).__name__, error.status_code)
"""
    done = wrap(script)
    assert done.stdout.splitlines() == ["read"] * 5 + ["InternalServerError 503"], done.stderr
    assert len(api.received) == 5
    assert done.report["refused"] == 1


RECOVERS_SOON = """
[[circuits]]
match = "provider/*"
policy.detectors = [{ consecutive_failures = { threshold = 5 } }]
policy.recovery = { cooldown = { base_s = 0.2, max_s = 0.2, lease_s = 600 } }
"""


def test_a_probe_closes_the_circuit_again(wrap: Wrap, api: ModelApi, tmp_path: Path) -> None:
    (tmp_path / "project" / "switchgear.toml").write_text(RECOVERS_SOON, encoding="utf-8")
    api.fail(5)
    script = f"""{CHAT}
import time
client = client.with_options(max_retries=0)
for _ in range(6):
    try:
        ask()
    except Exception as error:
        print("refused" if "Switchgear" in str(error) else "failed", flush=True)
for _ in range(1000):
    try:
        print(ask().choices[0].message.content)
        break
    except Exception:
        time.sleep(0.05)
print(ask().choices[0].message.content)
"""
    done = wrap(script, "--max-refusals", "1000")
    assert done.stdout.split() == ["failed"] * 5 + ["refused", "Hello", "Hello"], done.stderr
    assert len(api.received) == 7


def test_cancelled_calls_leave_nothing_behind(wrap: Wrap, api: ModelApi, tmp_path: Path) -> None:
    """A task that is cancelled while its call is the probe, before and in the middle of the stream."""
    (tmp_path / "project" / "switchgear.toml").write_text(RECOVERS_SOON, encoding="utf-8")
    api.script = [Reply(503)] * 5 + [Reply(hangs=True)] * 2
    script = """
import asyncio, os
from openai import AsyncOpenAI
async def main():
    async with AsyncOpenAI(base_url=os.environ["URL"] + "/v1", api_key="k", max_retries=0) as client:
        messages = [{"role": "user", "content": "Hello"}]
        async def ask(started, stream):
            made = client.chat.completions.create(
                model="gpt-4.1", messages=messages, max_tokens=100, stream=stream
            )
            if not stream:
                asyncio.get_running_loop().call_later(0.3, started.set)
                return (await made).choices[0].message.content
            async for _ in await made:
                started.set()
        async def until_admitted(stream):
            while True:
                started = asyncio.Event()
                running = asyncio.create_task(ask(started, stream))
                waiting = asyncio.create_task(started.wait())
                await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    running.cancel()
                    try:
                        await running
                    except asyncio.CancelledError:
                        return "cancelled"
                if running.exception() is None:
                    return running.result()
                await asyncio.sleep(0.05)
        for _ in range(5):
            try:
                await ask(asyncio.Event(), False)
            except Exception as error:
                print(error.status_code)
        print(await until_admitted(False))
        print(await until_admitted(True))
        print(await until_admitted(False))
asyncio.run(main())
"""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with Panel(store) as panel:
        panel.budgets.open("team", 1_000_000)
    done = wrap(script, "--store", store, "--budget-node", "team", "--max-refusals", "1000")
    said = done.stdout.split()
    assert said == ["503"] * 5 + ["cancelled", "cancelled", "Hello"], done.stderr
    with Panel(store) as panel:
        assert [row.node.held_micros for row in panel.budgets.tree("team")] == [0]
