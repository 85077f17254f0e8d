"""Usage of agents, read from their transcripts: context and cost recorded after each tool, each answer once."""

import json
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents import hook_protocol
from switchgear._hooks import usage as prices
from switchgear._hooks.usage import ModelPrices, prices_of
from unit.hook_calls import Guarded, after, before, claude

STORY = """\
circuits:
  - match: story/*
    policy: {detectors: [{total_cost: {budget_micros: 5000, threshold: 1}}], recovery: latched}
hooks: {story: S-1}
"""
AT = "2025-06-15T15:06:50.000Z"
"""A moment after the beginning of the tests' time."""
SONNET = "claude-sonnet-4-5"


def claude_line(answer: str, sent: int, said: int, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": sent, "output_tokens": said, **more.pop("usage", {})}
    message = {"id": answer, "role": "assistant", "model": SONNET, "usage": usage}
    return {"type": "assistant", "timestamp": AT, "message": message, **more}


def codex_line(answer: int, sent: int, said: int) -> dict[str, Any]:
    last = {"input_tokens": sent, "output_tokens": said, "cached_input_tokens": 0}
    info = {
        "total_token_usage": {"total_tokens": answer},
        "last_token_usage": last,
        "model_context_window": 100_000,
    }
    return {"timestamp": AT, "type": "event_msg", "payload": {"type": "token_count", "info": info}}


def codex_record(answer: int, sent: int, said: int) -> dict[str, Any]:
    """What Codex writes before the tools of an answer."""
    usage = {"input_tokens": sent, "output_tokens": said}
    used = {"usage": usage, "thread_token_usage": {"total_tokens": answer}}
    return {"timestamp": AT, "type": "token_usage_record", "payload": used}


def gemini_line(answer: str, sent: int, said: int) -> dict[str, Any]:
    tokens = {"input": sent, "output": said, "cached": 0, "thoughts": 0}
    return {
        "id": answer,
        "timestamp": AT,
        "type": "gemini",
        "tokens": tokens,
        "model": "gemini-2.5-pro",
    }


def qwen_line(answer: str, sent: int, said: int) -> dict[str, Any]:
    usage = {"promptTokenCount": sent, "candidatesTokenCount": said}
    return {
        "uuid": answer,
        "timestamp": AT,
        "type": "assistant",
        "model": "gpt-5",
        "usageMetadata": usage,
        "contextWindowSize": 100_000,
    }


class Said:
    """A transcript that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def add(self, *lines: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)


@pytest.fixture
def said(tmp_path: Path) -> Said:
    return Said(tmp_path / "talk" / "s1.jsonl")


@pytest.fixture
def agent(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path, STORY)


def step(agent: Guarded, said: Said, call: str, **more: Any) -> None:
    agent.hear(before(call=call, **more))
    agent.hear(after(call=call, transcript_path=str(said.path), **more))


def cost(agent: Guarded, key: str = "session/s1") -> int:
    found: int = agent.totals(key).cost_micros
    return found


def context(agent: Guarded, key: str = "session/s1") -> float:
    found = agent.store.get(key)
    assert found is not None
    [burn] = [memory for memory in found.circuit.memories if hasattr(memory, "per_minute")]
    return float(burn.used)


def test_an_answer_is_charged_to_the_session_and_to_its_task(agent: Guarded, said: Said) -> None:
    said.add(claude_line("m1", 1_000, 20))
    step(agent, said, "t1")
    assert cost(agent) == 3_300, "1,000 at $3 and 20 at $15 a million"
    assert cost(agent, "story/S-1") == 3_300
    assert context(agent) == 1_020 / 200_000


def test_an_answer_in_several_lines_is_charged_once_and_for_its_last_count(
    agent: Guarded, said: Said
) -> None:
    said.add(claude_line("m1", 1_000, 1), claude_line("m1", 1_000, 1))
    step(agent, said, "t1")
    assert cost(agent) == 3_015
    said.add(claude_line("m1", 1_000, 20))
    step(agent, said, "t2")
    step(agent, said, "t3")
    assert cost(agent) == 3_300
    assert cost(agent, "story/S-1") == 3_300


def test_an_incomplete_line_is_read_when_it_is_complete(agent: Guarded, said: Said) -> None:
    text = json.dumps(claude_line("m1", 1_000, 20))
    said.path.write_text(text[:80])
    step(agent, said, "t1")
    said.path.write_text(f"{text}\n")
    step(agent, said, "t2")
    assert cost(agent) == 3_300


def test_the_last_answer_is_charged_when_the_turn_ends(agent: Guarded, said: Said) -> None:
    said.add(claude_line("m1", 1_000, 20))
    agent.hear(claude("Stop", transcript_path=str(said.path)))
    agent.hear(claude("SessionEnd", transcript_path=str(said.path)))
    assert cost(agent) == cost(agent, "story/S-1") == 3_300


def test_usage_from_before_the_session_was_guarded_is_not_charged(
    agent: Guarded, said: Said
) -> None:
    said.add({**claude_line("m0", 90_000, 9_000), "timestamp": "2025-06-15T15:00:00.000Z"})
    said.add(claude_line("m1", 1_000, 20))
    step(agent, said, "t1")
    assert cost(agent) == 3_300


def test_an_exhausted_task_budget_stops_the_agent(agent: Guarded, said: Said) -> None:
    for n in range(2):
        said.add(claude_line(f"m{n}", 1_000, 20))
        step(agent, said, f"t{n}")
    refused = agent.hear(before(call="t9"))
    assert refused.action == "stop"
    assert "story/S-1" in refused.text


def test_the_cache_has_its_own_prices(agent: Guarded, said: Said) -> None:
    usage = {"cache_read_input_tokens": 1_000, "cache_creation_input_tokens": 1_000}
    said.add(claude_line("m1", 1_000, 0, usage=usage))
    step(agent, said, "t1")
    assert cost(agent) == 3_000 + 300 + 3_750
    assert context(agent) == 3_000 / 200_000


def test_a_context_that_fills_fast_is_a_signal_of_the_stuck_score(
    tmp_path: Path, said: Said
) -> None:
    alone = "circuits: [{match: session/*, policy: {detectors: [{context_burn: {}}]}}]\n"
    alone += "interventions: {progress: false}\n"
    agent = Guarded(tmp_path, alone)
    for n in range(40):
        said.add(claude_line(f"m{n}", 1_000 + 1_000 * n, 20))
        step(agent, said, f"t{n}")
    assert agent.phase("session/s1") == "open"


@pytest.mark.parametrize(
    ("name", "lines", "micros"),
    [
        ("claude-code", (claude_line("1", 1_000, 20), claude_line("2", 2_000, 20)), 9_600),
        ("codex", (codex_line(1_020, 1_000, 20), codex_line(3_040, 2_000, 20)), 4_150),
        ("gemini", (gemini_line("1", 1_000, 20), gemini_line("2", 2_000, 20)), 4_150),
        ("qwen", (qwen_line("1", 1_000, 20), qwen_line("2", 2_000, 20)), 4_150),
    ],
)
def test_each_agent_is_charged_for_the_usage_in_its_own_lines(
    tmp_path: Path, said: Said, name: str, lines: Any, micros: int
) -> None:
    agent = Guarded(tmp_path, agent=name)
    names = ("AfterTool", "BeforeTool") if name == "gemini" else ("PostToolUse", "PreToolUse")
    told: dict[str, Any] = {"tool_name": "Bash", "tool_input": {}, "model": "gpt-5"}
    for line in lines:
        said.add(line, line)
        agent.hear(claude(names[1], **told))
        agent.hear(claude(names[0], **told, tool_response="", transcript_path=str(said.path)))
    assert cost(agent) == micros
    window = 200_000 if name in {"claude-code", "gemini"} else 100_000
    assert context(agent) == 1_020 / window, "the burn is measured from the first on"


def test_a_sub_agent_is_charged_from_its_own_transcript(agent: Guarded, said: Said) -> None:
    said.add(claude_line("m1", 1_000, 20))
    step(agent, said, "t1")
    sub = Said(said.path.with_suffix("") / "subagents" / "agent-b7.jsonl")
    sub.add(claude_line("m2", 100, 0, isSidechain=True))
    step(agent, said, "t2", agent_id="b7")
    last = {"agent_id": "b7", "agent_transcript_path": str(sub.path)}
    agent.hear(claude("SubagentStop", transcript_path=str(said.path), **last))
    assert cost(agent) == 3_300
    assert cost(agent, "session/s1/agent/b7") == 300
    assert cost(agent, "story/S-1") == 3_600


def test_answers_to_sub_agents_in_the_same_file_cost_but_fill_another_context(
    agent: Guarded, said: Said
) -> None:
    said.add(claude_line("m1", 1_000, 20), claude_line("m2", 9_000, 20, isSidechain=True))
    step(agent, said, "t1")
    assert cost(agent) == 3_300 + 27_300
    assert context(agent) == 1_020 / 200_000


def test_a_window_that_the_user_names_takes_precedence_over_the_list(
    tmp_path: Path, said: Said
) -> None:
    agent = Guarded(tmp_path, "hooks: {context_tokens: 1000000}\n")
    said.add(claude_line("m1", 1_000, 0))
    step(agent, said, "t1")
    assert context(agent) == 0.001


def test_a_model_without_a_price_is_reported_once_and_never_free(
    agent: Guarded, said: Said
) -> None:
    for n in range(3):
        line = claude_line(f"m{n}", 1_000, 20)
        line["message"]["model"] = "nobodys-model"
        said.add(line)
        step(agent, said, f"t{n}")
    [why] = agent.events("undecided")
    assert why.startswith("not charged: the price list of ")
    assert why.endswith(" has no price for the model 'nobodys-model'")
    assert cost(agent) == 0
    assert context(agent) == 1_020 / 200_000


@pytest.mark.parametrize(
    "line",
    [
        {"message": {"id": "m1", "usage": {"input_tokens": True, "output_tokens": -5}}},
        {"message": {"id": ["m1"], "usage": {"input_tokens": 10**30}}},
        {"message": {"usage": [1]}},
        {"message": "usage"},
        ["usage"],
    ],
)
def test_invalid_lines_are_not_usage(agent: Guarded, said: Said, line: Any) -> None:
    with said.path.open("ab") as file:
        file.write(b'\xff"usage"\n{"usage": \n' + json.dumps(line).encode() + b' "usage"\n')
        file.write(json.dumps(line).encode() + b"\n")
    step(agent, said, "t1")
    assert cost(agent) == 0


def test_only_the_end_of_new_content_is_read(
    agent: Guarded, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_protocol, "MAX_NEW_BYTES", 600)
    said.add(claude_line("m1", 500_000, 20), {"filler": "x" * 400}, claude_line("m2", 1_000, 20))
    step(agent, said, "t1")
    assert cost(agent) == 3_300


def test_a_transcript_that_became_shorter_is_not_charged_again(agent: Guarded, said: Said) -> None:
    said.add(claude_line("m1", 1_000, 20), claude_line("m2", 1_000, 20))
    step(agent, said, "t1")
    said.path.write_text(json.dumps(claude_line("m3", 1_000, 20)) + "\n")
    step(agent, said, "t2")
    assert cost(agent) == 6_600
    said.add(claude_line("m4", 1_000, 20))
    step(agent, said, "t3")
    assert cost(agent) == 9_900


def test_a_response_of_codex_is_charged_once_although_two_kinds_of_lines_report_it(
    tmp_path: Path, said: Said
) -> None:
    agent = Guarded(tmp_path, agent="codex")
    told: dict[str, Any] = {"tool_name": "Bash", "tool_input": {}, "model": "gpt-5"}
    for n in (1, 2):
        said.add(codex_record(1_020 * n, 1_000, 20))
        agent.hear(claude("PostToolUse", **told, transcript_path=str(said.path)))
        said.add(codex_line(1_020 * n, 1_000, 20))
        agent.hear(claude("Stop", model="gpt-5", transcript_path=str(said.path)))
        assert cost(agent) == 1_450 * n
    assert context(agent) == 1_020 / 100_000


# The file of prices


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def look(model: str) -> ModelPrices:
        asked.append(model)
        return ModelPrices(unknown="no list") if model == "unknown" else ModelPrices(1, 2, 3, 4, 5)

    monkeypatch.setattr(prices, "_price_from_list", look)
    return asked


def test_a_price_is_looked_up_once_a_day(tmp_path: Path, looked_up: list[str]) -> None:
    for now_s in (1_000.0, 2_000.0, 1_000.0 + prices.KNOWN_PRICE_S - 1):
        assert prices_of("m", str(tmp_path), now_s)[:5] == (1, 2, 3, 4, 5)
    assert looked_up == ["m"]
    prices_of("m", str(tmp_path), 1_000.0 + prices.KNOWN_PRICE_S)
    assert looked_up == ["m", "m"]


def test_an_unknown_price_is_looked_up_again_soon(tmp_path: Path, looked_up: list[str]) -> None:
    for now_s in (0.0, 1.0, prices.UNKNOWN_PRICE_S):
        assert prices_of("unknown", str(tmp_path), now_s).cost_micros((1, 1, 0, 0)) is None
    assert looked_up == ["unknown", "unknown"]


@pytest.mark.parametrize(
    "damage", ['{"m": [0, 0, 0', '{"m": ["free", 0, 0, 0, null, "", 0]}', "[1]", '{"m": 1}']
)
def test_a_file_with_invalid_content_is_rebuilt(
    tmp_path: Path, looked_up: list[str], damage: str
) -> None:
    place = tmp_path / prices.CACHE_NAME
    place.write_text(damage)
    place.chmod(0o600)
    assert prices_of("m", str(tmp_path), 0.0).input == 1
    assert looked_up == ["m"]
    assert json.loads(place.read_text())["m"][:4] == [1, 2, 3, 4]


def test_a_file_that_others_can_write_is_ignored(tmp_path: Path, looked_up: list[str]) -> None:
    prices_of("m", str(tmp_path), 0.0)
    (tmp_path / prices.CACHE_NAME).chmod(0o666)
    prices_of("m", str(tmp_path), 0.0)
    assert looked_up == ["m", "m"]
