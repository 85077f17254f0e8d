"""An agent that repeats a refused operation: refused each time, then nudged, then stopped."""

from pathlib import Path

from unit.hook_calls import Guarded, batch, before

GIT = {"command": "git push"}


def opened(folder: Path, agent: str = "codex") -> Guarded:
    guarded = Guarded(folder, agent=agent)
    for number in range(3):
        guarded.call(args=GIT, call=f"f{number}", result=f"Process exited with code {number + 1}")
    assert guarded.phase("op/git_operations") == "open"
    return guarded


def test_an_agent_that_repeats_a_refused_operation_is_nudged_and_stopped(
    tmp_path: Path,
) -> None:
    agent = opened(tmp_path)
    rulings = [agent.hear(before(args=GIT, call=f"r{number}")) for number in range(20)]
    assert rulings[0].action == "deny"
    assert "circuit 'op/git_operations' is open" in rulings[0].text
    assert rulings[-1].action == "stop"
    assert any("AGENT APPEARS STUCK" in ruling.text for ruling in rulings)


def test_one_or_two_refusals_stop_no_session(tmp_path: Path) -> None:
    agent = opened(tmp_path)
    for number in range(10):
        assert agent.hear(before(args=GIT, call=f"r{number}")).action == "deny"
        ruling = agent.call("Edit", {"file_path": f"{number}.py", "new_string": "x"}, f"e{number}")
        assert ruling.action == "allow", ruling.text


def test_refusals_of_one_batch_are_one_step(tmp_path: Path) -> None:
    agent = opened(tmp_path, "claude-code")
    agent.hear(batch())
    told = agent.totals("session/s1").failed
    for number in range(5):
        agent.hear(before(args=GIT, call=f"r{number}"))
    agent.hear(batch(*(("Bash", GIT, f"r{number}") for number in range(5)), response="denied"))
    assert agent.totals("session/s1").failed == told + 1
