"""The command over a real Redis: the same verbs, and a password that is never shown."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quick_command
from servers.server import Server, running

SECRET = "hunter2-hunter2"
Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        server.say("ACL", "SETUSER", "ada", "on", f">{SECRET}", "~*", "&*", "+@all")
        yield server


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Run:
    """Runs `switchgear` over that server with an empty home; the password is in the URL."""
    server.say("FLUSHALL")
    url = server.url.replace("redis://", f"redis://ada:{SECRET}@")

    def call(*args: str, **more: str) -> Done:
        kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        env = {**kept, "SWITCHGEAR_STORE": url, **more}
        done = quick_command.run(*args, cwd=tmp_path, env=env)
        assert SECRET not in done.stdout + done.stderr
        return done

    return call


def test_the_verbs_work_over_redis_and_an_export_is_imported_exactly(
    run: Run, tmp_path: Path
) -> None:
    told = run("record", "provider/x", "failure", "--count", "5", "--error", "529")
    assert "closed → open" in told.stdout, told.stderr
    assert run("check", "provider/x").returncode == 1
    (first,) = (json.loads(line) for line in run("events", "--json").stdout.splitlines())
    assert run("hold", "closed", "provider/x", "--why", "now", "--by", "ada").returncode == 0
    assert run("check", "provider/x").returncode == 0
    later = run("events", "--json", "--since", first["cursor"]).stdout.splitlines()
    assert [json.loads(line)["why"] for line in later] == ["now"]
    assert "provider/x [held closed]" in run("status").stdout
    assert "consecutive_failures" in run("show", "provider/x").stdout
    assert run("budgets", "set", "atlas", "5").returncode == 0
    (tmp_path / "out").write_text(run("export").stdout)
    file = f"sqlite:///{tmp_path}/moved.db"
    assert "1 circuit imported" in (moved := run("import", "out", "--store", file).stdout)
    assert "1 account imported" in moved
    assert run("export", "--store", file).stdout == (tmp_path / "out").read_text()
    assert "removed 0 circuits and 1 event" in run("vacuum", "--keep-events", "1").stdout
    assert "0 circuits imported, 1 kept" in run("import", "out").stdout


def test_the_doctor_and_the_configuration_hide_the_password(run: Run) -> None:
    run("record", "a", "success")
    done = run("doctor")
    assert done.returncode == 1, done.stdout
    assert "! store: persistence none: a restart loses every circuit" in done.stdout
    assert "0 problems, 1 warning" in done.stdout
    assert "ada" not in done.stdout
    assert "ada" not in run("config", "show").stdout


def test_a_wrong_password_is_reported_in_a_sentence_and_not_shown(run: Run, server: Server) -> None:
    wrong = server.url.replace("redis://", "redis://ada:wrong-wrong@")
    for verb in (("status",), ("record", "a", "success"), ("doctor",)):
        done = run(*verb, "--store", wrong)
        assert done.returncode == 2
        assert "wrong-wrong" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    refused = run("check", "a", "--store", wrong)
    assert "wrong-wrong" not in refused.stdout + refused.stderr
