"""Small recordings in each format: the same session, eleven times.

The agent reads a file that is there, fails three times at one that is not, and says that it gives
up. Shapes are those that the CLIs of tests/e2e/agents write, and of the documented formats.
"""

import json
from pathlib import Path
from typing import Any

THERE, MISSING = "cat there.txt", "cat missing.txt"
NOT_FOUND = "cat: missing.txt: No such file or directory"
TASK = "Read the settings."
LAST_WORDS = "The settings are missing. I give up."
AT = "2026-11-15T10:00:{:02}.000Z"

Lines = list[dict[str, Any]]


def calls() -> list[tuple[str, str, int]]:
    """Command, output, exit code."""
    return [(THERE, "all is well", 0), *[(MISSING, NOT_FOUND, 1)] * 3]


def claude() -> Lines:
    head = {"sessionId": "s-claude", "isSidechain": False}
    lines: Lines = [
        {"type": "summary", "summary": "Settings", "leafUuid": "u9"},
        {**head, "type": "user", "timestamp": AT.format(0), "message": {"content": TASK}},
    ]
    for number, (command, output, code) in enumerate(calls(), 1):
        usage = {"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 20}
        message = {"id": f"m{number}", "role": "assistant", "model": "claude-sonnet-4-5"}
        thought = {"type": "text", "text": f"Look number {number}."}
        use = {
            "type": "tool_use",
            "id": f"t{number}",
            "name": "Bash",
            "input": {"command": command},
        }
        lines += [
            {**head, "type": "assistant", "timestamp": AT.format(2 * number),
             "message": {**message, "usage": usage, "content": [part]}}
            for part in (thought, use)
        ]  # fmt: skip
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": output}
        lines.append(
            {**head, "type": "user", "timestamp": AT.format(2 * number + 1),
             "message": {"content": [{**result, "is_error": bool(code)}]}}
        )  # fmt: skip
    end = {
        "id": "m9",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": LAST_WORDS}],
    }
    return [*lines, {**head, "type": "assistant", "timestamp": AT.format(20), "message": end}]


def codex() -> Lines:
    def item(second: int, **payload: Any) -> dict[str, Any]:
        return {"timestamp": AT.format(second), "type": "response_item", "payload": payload}

    lines: Lines = [
        {"timestamp": AT.format(0), "type": "session_meta", "payload": {"id": "s-codex"}},
        {"timestamp": AT.format(0), "type": "turn_context", "payload": {"model": "gpt-5"}},
        item(0, type="message", role="user", content=[{"text": "<environment_context>"}]),
        item(0, type="message", role="user", content=[{"type": "input_text", "text": TASK}]),
    ]
    for number, (command, output, code) in enumerate(calls(), 1):
        said = {"type": "summary_text", "text": f"Look number {number}."}
        told = f"Chunk ID: {number}\nProcess exited with code {code}\nOutput:\n{output}"
        arguments = json.dumps({"cmd": command})
        last = {"input_tokens": 1000, "cached_input_tokens": 900, "output_tokens": 20}
        lines += [
            item(2 * number, type="reasoning", summary=[said]),
            item(2 * number, type="function_call", name="exec_command",
                 arguments=arguments, call_id=f"c{number}"),
            item(2 * number + 1, type="function_call_output", call_id=f"c{number}", output=told),
            {"timestamp": AT.format(2 * number + 1), "type": "event_msg",
             "payload": {"type": "token_count", "info": {"last_token_usage": last}}},
        ]  # fmt: skip
    return [
        *lines,
        item(20, type="message", role="assistant", content=[{"text": LAST_WORDS}]),
        {"timestamp": AT.format(20), "type": "event_msg", "payload": {"type": "task_complete"}},
    ]


def gemini_messages() -> Lines:
    messages: Lines = [
        {"id": "u0", "timestamp": AT.format(0), "type": "user", "content": [{"text": TASK}]}
    ]
    for number, (command, output, code) in enumerate(calls(), 1):
        shown = f"Output: {output}\n" + (f"Exit Code: {code}\n" if code else "")
        response = {"output": f"<untrusted_context>\n{shown}Process Group PGID: {number}\n"}
        messages.append(
            {
                "id": f"g{number}",
                "timestamp": AT.format(2 * number),
                "type": "gemini",
                "content": f"Look number {number}.",
                "thoughts": [],
                "tokens": {"input": 1000, "output": 20, "cached": 900, "thoughts": 0},
                "model": "gemini-2.5-pro",
                "toolCalls": [
                    {
                        "id": f"c{number}",
                        "name": "run_shell_command",
                        "args": {"command": command},
                        "status": "success",
                        "timestamp": AT.format(2 * number + 1),
                        "result": [{"functionResponse": {"response": response}}],
                    }
                ],
            }
        )
    end = {"id": "g9", "timestamp": AT.format(20), "type": "gemini", "content": LAST_WORDS}
    return [*messages, end]


def gemini() -> Lines:
    lines: Lines = [{"sessionId": "s-gemini", "projectHash": "p", "kind": "main"}]
    for message in gemini_messages():
        if "toolCalls" in message:  # it is written before its calls are known, and again
            lines.append({key: value for key, value in message.items() if key != "toolCalls"})
        lines += [message, {"$set": {"lastUpdated": AT.format(30)}}]
    return lines


def gemini_document() -> dict[str, Any]:
    return {"sessionId": "s-gemini", "projectHash": "p", "messages": gemini_messages()}


def qwen() -> Lines:
    head = {"sessionId": "s-qwen"}
    lines: Lines = [
        {**head, "type": "user", "timestamp": AT.format(0), "message": {"parts": [{"text": TASK}]}}
    ]
    for number, (command, output, code) in enumerate(calls(), 1):
        call = {"id": f"c{number}", "name": "run_shell_command", "args": {"command": command}}
        usage = {
            "promptTokenCount": 1000,
            "candidatesTokenCount": 20,
            "cachedContentTokenCount": 900,
        }
        told = f"Command: {command}\nDirectory: (root)\nOutput: {output}\nError: (none)\nExit Code: {code}"
        answer = {"id": f"c{number}", "response": {"error" if code else "output": told}}
        lines += [
            {**head, "type": "system", "subtype": "ui_telemetry"},
            {**head, "type": "assistant", "timestamp": AT.format(2 * number), "model": "gpt-5",
             "usageMetadata": usage,
             "message": {"parts": [{"text": f"Look number {number}."}, {"functionCall": call}]}},
            {**head, "type": "tool_result", "timestamp": AT.format(2 * number + 1),
             "message": {"parts": [{"functionResponse": answer}]}},
        ]  # fmt: skip
    end = {"parts": [{"text": LAST_WORDS}]}
    return [*lines, {**head, "type": "assistant", "timestamp": AT.format(20), "message": end}]


def opencode() -> dict[str, Any]:
    user = {"info": {"role": "user", "time": {"created": 1_794_736_800_000}}}
    messages: Lines = [{**user, "parts": [{"type": "text", "text": TASK}]}]
    for number, (command, output, code) in enumerate(calls(), 1):
        tokens = {"input": 100, "output": 20, "reasoning": 0, "cache": {"read": 900, "write": 0}}
        at_ms = 1_794_736_800_000 + 2000 * number
        info = {"role": "assistant", "providerID": "anthropic", "modelID": "claude-sonnet-4-5",
                "cost": 0.003, "tokens": tokens, "time": {"created": at_ms}}  # fmt: skip
        state = {"status": "completed", "input": {"command": command}, "output": output,
                 "metadata": {"exit": code}, "time": {"start": at_ms, "end": at_ms + 1000}}  # fmt: skip
        parts: Lines = [
            {"type": "step-start"},
            {"type": "text", "text": f"Look number {number}."},
            {"type": "tool", "tool": "bash", "callID": f"c{number}", "state": state},
            {"type": "step-finish"},
        ]
        messages.append({"info": info, "parts": parts})
    end = {"info": {"role": "assistant"}, "parts": [{"type": "text", "text": LAST_WORDS}]}
    return {"info": {"id": "ses_1"}, "messages": [*messages, end]}


def pi() -> Lines:
    lines: Lines = [
        {"type": "session", "version": 3, "id": "s-pi", "cwd": "/work", "timestamp": AT.format(0)},
        {"type": "model_change", "provider": "anthropic"},
        {"type": "message", "timestamp": AT.format(0),
         "message": {"role": "user", "content": [{"type": "text", "text": TASK}]}},
    ]  # fmt: skip
    for number, (command, output, code) in enumerate(calls(), 1):
        usage = {"input": 100, "output": 20, "cacheRead": 900, "cost": {"total": 0.003}}
        call = {
            "type": "toolCall",
            "id": f"c{number}",
            "name": "bash",
            "arguments": {"command": command},
        }
        said = {"type": "text", "text": f"Look number {number}."}
        answer = {"role": "assistant", "provider": "anthropic", "model": "claude-sonnet-4-5"}
        result = {"role": "toolResult", "toolCallId": f"c{number}", "isError": bool(code)}
        lines += [
            {"type": "message", "timestamp": AT.format(2 * number),
             "message": {**answer, "content": [said, call], "usage": usage}},
            {"type": "message", "timestamp": AT.format(2 * number + 1),
             "message": {**result, "content": [{"type": "text", "text": output}]}},
        ]  # fmt: skip
    end = {"role": "assistant", "content": [{"type": "text", "text": LAST_WORDS}]}
    return [*lines, {"type": "message", "timestamp": AT.format(20), "message": end}]


def openhands() -> Lines:
    events: Lines = [
        {"id": 0, "timestamp": AT.format(0), "source": "agent", "action": "system", "args": {}},
        {"id": 1, "timestamp": AT.format(0), "source": "user", "action": "message",
         "args": {"content": TASK}},
    ]  # fmt: skip
    for number, (command, output, code) in enumerate(calls(), 1):
        spent = {"prompt_tokens": 1000 * number, "completion_tokens": 20 * number}
        metrics = {"accumulated_cost": 0.003 * number, "accumulated_token_usage": spent}
        events += [
            {"id": 2 * number, "timestamp": AT.format(2 * number), "source": "agent",
             "action": "run", "args": {"command": command, "thought": f"Look number {number}."},
             "tool_call_metadata": {"function_name": "execute_bash"}, "llm_metrics": metrics},
            {"id": 2 * number + 1, "timestamp": AT.format(2 * number + 1), "source": "agent",
             "cause": 2 * number, "observation": "run", "content": output,
             "extras": {"metadata": {"exit_code": code}}},
        ]  # fmt: skip
    end = {"action": "message", "source": "agent", "args": {"content": LAST_WORDS}}
    return [*events, {**end, "id": 30, "timestamp": AT.format(20)}]


def openhands_evaluation() -> Lines:
    facts = {"metadata": {"llm_config": {"model": "claude-sonnet-4-5"}}, "error": None}
    return [
        {"instance_id": key, "history": openhands(), **facts, "report": {"resolved": solved}}
        for key, solved in (("task-1", True), ("task-2", False))
    ]


def openhands_sdk() -> Lines:
    text = {"type": "text", "text": TASK}
    events: Lines = [
        {"kind": "SystemPromptEvent", "id": "e0"},
        {"kind": "MessageEvent", "source": "user", "llm_message": {"content": [text]}},
    ]
    for number, (command, output, code) in enumerate(calls(), 1):
        seen = {"content": [{"type": "text", "text": output}], "exit_code": code}
        events += [
            {"kind": "ActionEvent", "source": "agent", "timestamp": AT.format(2 * number),
             "thought": [{"type": "text", "text": f"Look number {number}."}],
             "tool_name": "terminal", "tool_call_id": f"c{number}",
             "action": {"kind": "TerminalAction", "command": command}},
            {"kind": "ObservationEvent", "source": "environment", "tool_call_id": f"c{number}",
             "timestamp": AT.format(2 * number + 1), "observation": seen},
        ]  # fmt: skip
    said = {"content": [{"type": "text", "text": LAST_WORDS}]}
    return [*events, {"kind": "MessageEvent", "source": "agent", "llm_message": said}]


def swe_agent() -> dict[str, Any]:
    turns = [
        {"action": command, "observation": output, "thought": f"Look number {number}.",
         "response": "…", "execution_time": 1.0, "state": {}}
        for number, (command, output, _) in enumerate(calls(), 1)
    ]  # fmt: skip
    info = {"exit_status": "exit_cost", "model_stats": {"instance_cost": 0.012}}
    return {"trajectory": [*turns, {"action": "", "response": LAST_WORDS}], "info": info}


def mini_swe_agent() -> dict[str, Any]:
    messages: Lines = [{"role": "system", "content": "…"}, {"role": "user", "content": TASK}]
    for number, (command, output, code) in enumerate(calls(), 1):
        block = f"Look number {number}.\n\n```bash\n{command}\n```"
        told = f"<returncode>{code}</returncode>\n<output>\n{output}\n</output>"
        usage = {"prompt_tokens": 1000, "completion_tokens": 20}
        messages += [
            {"role": "assistant", "content": block, "extra": {"response": {"usage": usage}}},
            {"role": "user", "content": told},
        ]
    info = {
        "exit_status": "LimitsExceeded",
        "mini_version": "1.9.1",
        "config": {"model": {"model_name": "claude-sonnet-4-5"}},
    }
    end = {"role": "assistant", "content": LAST_WORDS}
    return {"info": info, "messages": [*messages, end], "trajectory_format": "mini-swe-agent-1"}


def otel() -> dict[str, Any]:
    def pairs(**facts: Any) -> Lines:
        named = {key.replace("__", "."): value for key, value in facts.items()}
        kinds = {int: "intValue", str: "stringValue"}
        return [{"key": key, "value": {kinds[type(v)]: v}} for key, v in named.items()]

    def span(key: str, second: int, name: str, attributes: Lines, **more: Any) -> dict[str, Any]:
        nanos = str(1_794_736_800_000_000_000 + second * 1_000_000_000)
        later = str(1_794_736_801_000_000_000 + second * 1_000_000_000)
        return {"traceId": "trace-1", "spanId": key, "parentSpanId": "root", "name": name,
                "startTimeUnixNano": nanos, "endTimeUnixNano": later,
                "attributes": attributes, "status": {}, **more}  # fmt: skip

    agent = pairs(gen_ai__operation__name="invoke_agent", gen_ai__agent__name="reader")
    spans = [span("root", 0, "invoke_agent reader", agent, parentSpanId="")]
    for number, (command, output, code) in enumerate(calls(), 1):
        said = [
            {"role": "assistant", "parts": [{"type": "text", "content": f"Look number {number}."}]}
        ]
        chat = pairs(
            gen_ai__operation__name="chat",
            gen_ai__request__model="gpt-5",
            gen_ai__usage__input_tokens=1000,
            gen_ai__usage__output_tokens=20,
            gen_ai__output__messages=json.dumps(said),
        )
        tool = pairs(
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="bash",
            gen_ai__tool__call__arguments=json.dumps({"command": command}),
            gen_ai__tool__call__result=output,
        )
        status = {"status": {"code": "STATUS_CODE_ERROR"}} if code else {}
        spans += [
            span(f"chat{number}", 4 * number, "chat gpt-5", chat),
            span(f"tool{number}", 4 * number + 2, "execute_tool bash", tool, **status),
        ]
    end = [{"role": "assistant", "parts": [{"type": "text", "content": LAST_WORDS}]}]
    last = pairs(gen_ai__operation__name="chat", gen_ai__output__messages=json.dumps(end))
    spans.append(span("chat9", 40, "chat gpt-5", last))
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans[::-1]}]}]}


def plain() -> Lines:
    steps: Lines = [
        {"tool": "bash", "args": {"command": command}, "result": output, "error": bool(code),
         "thought": f"Look number {number}.", "tokens": {"input": 1000, "output": 20}, "t": number}
        for number, (command, output, code) in enumerate(calls(), 1)
    ]  # fmt: skip
    steps.append({"thought": LAST_WORDS, "t": 20})
    head = {"task": TASK, "agent": "mine", "model": "gpt-5"}
    return [
        {"id": "run-1", **head, "solved": False, "outcome": "gave up", "steps": steps},
        {"id": "run-2", **head, "outcome": "solved", "steps": steps[:1]},
    ]


def as_lines(lines: Lines) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


FILES: dict[str, tuple[str, str]] = {
    "claude": ("a.jsonl", as_lines(claude())),
    "codex": ("rollout-1.jsonl", as_lines(codex())),
    "gemini": ("session-1.jsonl", as_lines(gemini())),
    "gemini document": ("session-1.json", json.dumps(gemini_document(), indent=2)),
    "qwen": ("b.jsonl", as_lines(qwen())),
    "opencode": ("export.json", json.dumps(opencode())),
    "pi": ("c.jsonl", as_lines(pi())),
    "openhands": ("trajectory.json", json.dumps(openhands())),
    "openhands evaluation": ("output.jsonl", as_lines(openhands_evaluation())),
    "openhands sdk": ("events.jsonl", as_lines(openhands_sdk())),
    "swe-agent": ("task-1.traj", json.dumps(swe_agent(), indent=2)),
    "mini-swe-agent": ("task-1.traj.json", json.dumps(mini_swe_agent(), indent=2)),
    "otel": ("spans.json", json.dumps(otel())),
    "plain": ("runs.jsonl", as_lines(plain())),
}
"""The name of the sample, the name of its file, its text. The format is the name's first word."""


def write(name: str, folder: Path) -> Path:
    file_name, text = FILES[name]
    path = folder / file_name
    path.write_text(text, encoding="utf-8")
    return path
