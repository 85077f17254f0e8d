"""Run a recipe of docs/integrations/recipes.md with the real package, in a separate environment.

    python tests/recipes/check.py NAME...

The package is installed into a temporary folder, which is removed afterwards. The code is that of the page. A scripted
API on loopback fails five times: the sixth call must be refused without a request, and a probe must succeed.
"""

# ruff: noqa: PLC0415, T201  a script; what it needs of the repository is imported in the new environment

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "integrations" / "recipes.md"
PACKAGES = {
    "CrewAI": "crewai==1.15.*",
    "LlamaIndex": "llama-index-llms-openai==0.8.*",
    "Haystack": "haystack-ai==3.4.*",
    "DSPy": "dspy==3.4.*",
    "smolagents": "smolagents[openai]==1.26.*",
    "Prefect": "prefect==3.8.* fastapi==0.139.*",
    "Ray": "ray==2.60.*",
}
Calls = dict[str, Callable[[], Any]]


def code_of(section: str) -> str:
    """The first block of a section."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    found = re.search(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        sys.exit(f"the page has no code for {section}")
    return found[1]


def calls_of(section: str, names: dict[str, Any], url: str) -> Calls:
    """The guarded calls of a recipe: each calls the model once."""
    run = asyncio.Runner().run
    if section == "CrewAI":
        llm = names["GuardedLLM"](model="gpt-4.1", base_url=url, api_key="none", max_retries=0)
        return {"call": lambda: llm.call("Hi"), "acall": lambda: run(llm.acall("Hi"))}
    if section == "LlamaIndex":
        llm = names["GuardedLLM"](model="gpt-4.1", api_base=url, api_key="none", max_retries=0)

        async def astream() -> list[Any]:
            return [each async for each in await llm.astream_complete("Hi")]

        return {
            "complete": lambda: llm.complete("Hi"),
            "acomplete": lambda: run(llm.acomplete("Hi")),
            "stream_complete": lambda: list(llm.stream_complete("Hi")),
            "astream_complete": lambda: run(astream()),
        }
    if section == "Haystack":
        haystack = import_module("haystack")
        key = import_module("haystack.utils").Secret.from_token("none")
        generators = import_module("haystack.components.generators.chat")
        inner = generators.OpenAIChatGenerator(
            key, model="gpt-4.1", api_base_url=url, max_retries=0
        )
        pipeline = haystack.Pipeline()
        pipeline.add_component("llm", names["GuardedGenerator"](inner))
        question = {"llm": {"messages": [names["ChatMessage"].from_user("Hi")]}}
        return {
            "run": lambda: pipeline.run(question),
            "run_async": lambda: run(pipeline.run_async(question)),
        }
    if section == "DSPy":
        dspy = import_module("dspy")
        config = dspy.lm15.RouterConfig(
            api_keys={"openai-chat": "none"}, base_urls={"openai-chat": url}
        )
        engines = names["GuardedEngine"](config), names["AsyncGuardedEngine"](config)
        lm = dspy.LM(
            "openai-chat:gpt-4.1",
            engine=engines[0],
            async_engine=engines[1],
            cache=False,
            num_retries=0,
        )
        return {"call": lambda: lm("Hi"), "acall": lambda: run(lm.acall("Hi"))}
    if section == "smolagents":
        quick = {"client_kwargs": {"max_retries": 0}, "retry": False}
        model = names["GuardedModel"]("gpt-4.1", api_base=url, api_key="none", **quick)
        asked = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
        return {
            "generate": lambda: model.generate(asked),
            "generate_stream": lambda: list(model.generate_stream(asked)),
        }
    raise NotImplementedError(section)


def is_refusal(error: BaseException | None) -> bool:
    """Whether an exception is or contains a refusal."""
    from switchgear import Rejected

    for _ in range(5):  # CrewAI raises errors that are their own cause
        if isinstance(error, Rejected) or "is open: " in str(error):
            return True
        error = None if error is None else error.__cause__
    return False


def check(section: str) -> None:
    """Run the recipe here, where its package is installed."""
    sys.path[:0] = [str(ROOT / "tests")]
    from servers.model_api import model_api
    from switchgear import Panel
    from switchgear.errors import is_provider_failure
    from switchgear.testing import FakeClock

    if section in {"Prefect", "Ray"}:
        {"Prefect": check_prefect, "Ray": check_ray}[section]()
        return
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    model = panel.breaker("provider/openai", failure_if=is_provider_failure)
    names: dict[str, Any] = {"panel": panel, "model": model, "__name__": "recipe"}
    exec(compile(code_of(section), str(PAGE), "exec"), names)
    with model_api() as api:
        for name, call in calls_of(section, names, f"{api.url}/v1").items():
            model.reset(by="recipe", why="next way to call")
            before = len(api.received)
            api.fail(5)
            failures = [outcome(call) for _ in range(5)]
            assert not any(map(is_refusal, failures)), failures
            assert all(failures), failures
            assert is_refusal(outcome(call)), name
            assert len(api.received) - before == 5, name
            clock.advance(61)
            assert outcome(call) is None, name
            assert model.totals.succeeded, name
            print(f"{section} {name}: as it should be", flush=True)


def check_prefect() -> None:
    """A refused task is retried after the cooldown; one that fails is not."""
    prefect = import_module("prefect")
    from switchgear import Cooldown, Panel, Policy
    from switchgear.detectors import ConsecutiveFailures
    from switchgear.errors import is_provider_failure

    policy = Policy([ConsecutiveFailures(5)], Cooldown(0.5, 0.5))
    model = Panel("memory:").breaker(
        "provider/openai", policy=policy, failure_if=is_provider_failure
    )
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code_of("Prefect"), str(PAGE), "exec"), names)
    sent: list[int] = []

    def send() -> str:
        sent.append(1)
        if len(sent) <= 5:
            raise ConnectionError("down")
        return "answer"

    refused = names["is_refused"]

    @prefect.task(retries=3, retry_delay_seconds=2, retry_condition_fn=refused)  # type: ignore[untyped-decorator]
    def ask() -> str:
        return model.call(send)

    @prefect.flow  # type: ignore[untyped-decorator]
    def asks() -> tuple[list[BaseException | None], str]:
        return [outcome(ask) for _ in range(5)], ask()

    failures, answer = asks()
    assert all(isinstance(error, ConnectionError) for error in failures), failures
    assert (answer, len(sent), model.totals.refused) == ("answer", 6, 1)
    print("Prefect: as it should be")


def check_ray() -> None:
    """Separate processes: the circuit is in a file."""
    ray = import_module("ray")
    from switchgear import Panel
    from switchgear.errors import is_provider_failure

    def send() -> None:
        with Path(calls).open("a") as file:
            file.write("x")
        raise ConnectionError("down")

    names: dict[str, Any] = {"Panel": Panel, "is_provider_failure": is_provider_failure}
    names["__name__"] = "recipe"
    exec(compile(code_of("Ray"), str(PAGE), "exec"), names)
    with tempfile.TemporaryDirectory() as folder:
        calls, store = f"{folder}/calls", f"sqlite:///{folder}/state.db"
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
        found = [outcome(lambda: ray.get(names["ask"].remote(store, send))) for _ in range(6)]
        assert Path(calls).read_text() == "xxxxx"
        refusal: Any = found[-1]
        assert refusal.cause.retry_after_s > 0
        ray.shutdown()
    print("Ray: as it should be")


def outcome(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def main(sections: list[str]) -> None:
    """Check each recipe in a new environment."""
    unknown = [each for each in sections if each not in PACKAGES]
    if unknown or not sections:
        sys.exit(f"name some of {', '.join(PACKAGES)}")
    for section in sections:
        with tempfile.TemporaryDirectory() as folder:
            # Not named as one of ours: scripts/venv would install the versions that are fixed for it.
            subprocess.run(
                [f"{ROOT}/scripts/venv", f"{folder}/recipe", str(ROOT), *PACKAGES[section].split()],
                cwd=ROOT,
                check=True,
            )
            quiet = {"CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
            quiet |= {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
            command = [f"{folder}/recipe/bin/python", __file__, "--here", section]
            subprocess.run(command, env={**os.environ, **quiet, "HOME": folder}, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        check(sys.argv[2])
    else:
        main(sys.argv[1:])
