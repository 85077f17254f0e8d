"""Hooks of several machines share circuits on a Redis server: the same calls, the same refusals."""

from pathlib import Path

from e2e.hook_process import hook
from servers.server import running
from switchgear._stores.redis import RedisStore
from trusted_config import write_config
from unit.hook_calls import after, before, failed

PUSH = {"command": "git push"}


def test_hooks_share_circuits_on_a_server(tmp_path: Path) -> None:
    with running() as server:
        projects = [tmp_path / "one", tmp_path / "two"]
        for project in projects:
            (project / ".git").mkdir(parents=True)
            write_config(project / "switchgear.yaml", f"store: {server.url}\n")
        for number in range(3):
            assert hook(projects[0], before("Bash", PUSH, f"t{number}")).code == 0
            error = f"Exit code 1\nrejected {number}"
            assert hook(projects[0], failed("Bash", PUSH, f"t{number}", error=error)).stderr == ""
        refused = hook(projects[1], before("Bash", PUSH, "t9", session_id="s2")).told
        assert refused["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert hook(projects[1], before("Read", {"file_path": "x"}, "r1")) == (0, "", "")
        assert hook(projects[1], after("Read", {"file_path": "x"}, "r1")) == (0, "", "")
        store = RedisStore(server.url)
        found = store.get("op/git_operations")
        assert found is not None
        assert (found.circuit.totals.failed, found.circuit.totals.refused) == (3, 1)
        store.close()


def test_a_server_that_is_gone_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write_config(tmp_path / "switchgear.yaml", "store: redis://127.0.0.1:1/0\n")
    ran = hook(tmp_path, before())
    assert ran.code == 0
    assert (
        "could not decide, and admitted: store redis://127.0.0.1:1/0 cannot be reached"
        in ran.stderr
    )
    assert (tmp_path / ".switchgear" / "hooks-undecided.log").read_text().count("\n") == 1
