"""Outcomes of recorded sessions: inferred from their end, with the reason, and corrected by a person."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear._agents.recordings.formats import runs_in
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordedStep,
    RecordingFile,
    RecordingTally,
    UserMessage,
)
from switchgear._analysis.backtest.labels import add_label, all_labels, labels_file, read_labels
from switchgear._analysis.backtest.opinions import OpinionAccuracy
from switchgear._analysis.backtest.outcomes import (
    DEFAULT_CONFIDENCE,
    MAX_CONFIDENCE,
    OutcomeSources,
    infer,
    label_key,
)
from switchgear._analysis.backtest.replay import judge
from switchgear._breaker.presets import MEASURED
from switchgear._cli import label as label_verb
from switchgear._cli import main
from switchgear._panel.panel import Panel
from unit import recording_samples

PASSED = "============ 12 passed in 0.31s ============"
FAILED = "FAILED a.py::test_b\n====== 1 failed, 11 passed in 0.31s ======"
EDIT = RecordedStep("Edit", '{"file_path": "a.py"}', "ok", ok=True, changed=True)
TALK = RecordedStep(thought="Done.", changed=False)


def shell(command: str, result: str, *, ok: bool = True) -> RecordedStep:
    return RecordedStep("Bash", json.dumps({"command": command}), result, ok=ok, changed=None)


def run(*steps: RecordedStep, said: str = "", **more: Any) -> RecordedRun:
    messages = (UserMessage(0, "fix it"), *((UserMessage(len(steps), said),) if said else ()))
    return RecordedRun("r1", "a.jsonl", "claude", "claude", steps=steps, messages=messages, **more)


def said_by_agent(words: str) -> RecordedStep:
    return RecordedStep(thought=words, changed=False)


TESTS_PASS, TESTS_FAIL = shell("pytest -q", PASSED), shell("pytest -q", FAILED, ok=False)
COMMIT = shell("git commit -am x", "[main abc1234] x\n 1 file changed")
RESET = shell("git reset --hard HEAD~1", "HEAD is now at 1234567")
BAD_ENDS = ("exit_cost", "exit_context", "max_rounds", "max_iterations", "timed out", "give_up")
OTHER_LANGUAGES = (
    *("danke, perfekt", "nein, das ist falsch", "no, gracias, todo bien", "no, eso está mal"),
    *(
        "merci, c'est parfait",
        "non, c'est faux",
        "谢谢, 很好",
        "不对",
        "ありがとう",
        "нет, не работает",
    ),
)
"""Only English is understood: what is not understood is no evidence."""
FAILS = RecordedStep("Bash", "make", "no rule", ok=False)


@pytest.mark.parametrize(
    ("recorded", "solved", "why"),
    [
        (run(EDIT, TESTS_PASS, TALK), True, "the last test run passes (12)"),
        (run(EDIT, TESTS_FAIL, TALK), False, "the last test run fails (1 of 12)"),
        (run(EDIT, TESTS_FAIL, EDIT, TESTS_PASS), True, "passes"),
        (run(EDIT, TESTS_PASS, EDIT), True, "before the last change"),
        (run(EDIT, COMMIT, TALK), True, "it ends with a commit (abc1234)"),
        (run(EDIT, COMMIT, RESET), False, "undone"),
        (run(EDIT, shell("git checkout -- .", "")), False, "discarded"),
        (run(EDIT, TALK, said="Thanks, that works!"), True, "is positive"),
        (run(EDIT, TALK, said="No, it still fails with the same error"), False, "complains"),
        (run(EDIT, TALK, said="that's not great"), False, "complains"),
        (run(EDIT, FAILS, FAILS, FAILS), False, "last three tool calls failed"),
        (run(EDIT, ended="error_max_turns"), False, "it ended with 'error_max_turns'"),
        (run(EDIT, ended="interrupted"), False, "it was interrupted"),
        (run(TESTS_PASS, EDIT, TESTS_FAIL), False, "the last test run fails (1 of 12)"),
        (run(EDIT, TESTS_FAIL, EDIT), False, "before the last change"),
        (run(EDIT, shell("bash", PASSED)._replace(tool="bash_execute")), True, "passes (12)"),
        (run(EDIT, TALK, said="Thanks, but it still doesn't work"), False, "complains"),
        (run(EDIT, TALK, said="Great, nothing wrong with that"), True, "is positive"),
        (run(EDIT, TALK, said="That\u2019s wrong, undo it"), False, "complains"),
        (run(EDIT, TALK, said="now the tests fail"), False, "complains"),
        (run(EDIT, TALK, said="Thanks, but it crashes on start"), False, "complains"),
        (run(EDIT, TALK, said="nope"), False, "complains"),
        (run(EDIT, TALK, said="Great, no test fails any more"), True, "is positive"),
        (run(EDIT, TALK, said="works like a charm"), True, "is positive"),
        (run(EDIT, TALK, said="nope, all good, thanks"), True, "is positive"),
        (run(EDIT, TALK, said="yes, that fixed it"), True, "is positive"),
        (run(EDIT, TALK, said="it does not compile"), False, "complains"),
        (run(EDIT, TALK, said="that broke the build"), False, "complains"),
        (run(EDIT, TALK, said="no, that's not it"), False, "complains"),
        (run(EDIT, TALK, said="can you revert that"), False, "complains"),
        (run(EDIT, TALK, said="you are going in circles"), False, "complains"),
        (run(EDIT, TALK, said="Traceback (most recent call last): x"), False, "complains"),
        (run(EDIT, TALK, said="can you look? it still fails"), False, "complains"),
        (run(EDIT, said_by_agent("I was not able to find the cause.")), False, "it gave up"),
        (run(EDIT, said_by_agent("I couldn\u2019t fix the parser.")), False, "it gave up"),
        *((run(EDIT, ended=end), False, f"it ended with {end!r}") for end in BAD_ENDS),
    ],
)
def test_the_end_of_a_run_suggests_an_outcome_and_reports_why(
    recorded: RecordedRun, solved: bool, why: str
) -> None:
    found = infer(recorded)
    assert found.solved is solved
    assert why in found.how
    assert 0.5 < found.confidence < 1.0


@pytest.mark.parametrize(
    "recorded",
    [
        run(),
        run(TALK),
        run(EDIT, TALK),
        run(EDIT, said="Now add a test, please"),
        run(EDIT, TALK, said="does it work? looks good?"),
        run(EDIT, TALK, said="I don't think it works"),
        run(EDIT, TALK, said="no thanks"),
        run(EDIT, TALK, said="add a test for a broken file"),
        run(EDIT, TALK, said="Please also handle the case where the input is wrong, thanks!"),
        run(EDIT, TALK, said="what happens if the login fails"),
        run(EDIT, TALK, said="what's wrong with the CI?"),
        run(EDIT, TALK, said="we need a message when a request failed"),
        run(EDIT, TALK, said="a dark mode would be great"),
        run(EDIT, TALK, said="thanks in advance"),
        run(EDIT, TALK, said="do not run the migrations yet"),
        run(EDIT, TALK, said="show the same error message in both places"),
        run(EDIT, TALK, said="use a name that is not reserved"),
        run(EDIT, TALK, said="add a button to undo this"),
        run(EDIT, TALK, said="what if the file is broken?"),
        run(EDIT, TALK, said="explain why it does not work on Windows"),
        run(EDIT, TALK, said="thanks for nothing"),
        run(EDIT, TALK, said="perfect, it fails as expected"),
        *(run(EDIT, TALK, said=each) for each in OTHER_LANGUAGES),
        run(EDIT, TALK, said="it works on my machine but not in CI"),
        run(EDIT, said_by_agent("I have fixed it; the old code could not find the file.")),
        run(EDIT, ended="success"),
        run(EDIT, ended="end_turn"),
        run(EDIT, FAILS, FAILS),
        run(EDIT, FAILS, FAILS, FAILS, EDIT),
        run(EDIT, shell("git commit -am x", "nothing to commit"), TALK),
        run(EDIT, shell("git commit -am x", "[main abc1234] x", ok=False), TALK),
        run(EDIT, shell("git restore a.py", ""), TALK),
        run(shell("cat log.txt", "thanks, 12 passed")),
        run(shell("git log", "[main abc1234] x")),
    ],
)
def test_a_run_without_evidence_has_no_outcome(recorded: RecordedRun) -> None:
    found = infer(recorded)
    assert (found.solved, found.how) == (None, "its end shows no outcome")


@pytest.mark.parametrize(
    "message",
    [
        UserMessage(1, "thanks, great"),
        UserMessage(1, "it still fails"),
        UserMessage(1, "[Request interrupted by user]", interrupts=True),
    ],
)
def test_an_old_message_is_not_evidence_about_later_work(message: UserMessage) -> None:
    assert infer(run(EDIT, EDIT)._replace(messages=(message,))).solved is None
    assert infer(run(EDIT, TALK)._replace(messages=(message,))).solved is not None


def test_tests_that_failed_from_the_start_are_not_evidence() -> None:
    before = infer(run(TESTS_FAIL, EDIT, TESTS_FAIL))
    assert (before.solved, before.how) == (
        None,
        "the last test run fails as the first did (1 of 12)",
    )
    assert infer(run(TESTS_FAIL, EDIT, TESTS_PASS)).solved is True
    assert infer(run(TESTS_PASS, EDIT, TESTS_FAIL)).solved is False


def test_a_message_after_an_interruption_counts_instead_of_it() -> None:
    stopped = UserMessage(2, "[Request interrupted by user]", interrupts=True)
    content = run(EDIT, TALK)._replace(messages=(stopped, UserMessage(2, "thanks, that works")))
    assert infer(content).solved is True
    unhappy = run(EDIT, TALK)._replace(messages=(stopped, UserMessage(2, "that is wrong")))
    assert infer(unhappy).solved is False


def test_signs_add_up_and_contradictions_lower_the_confidence() -> None:
    sure = infer(run(EDIT, TESTS_PASS, COMMIT, said="perfect, thanks"))
    unsure = infer(run(EDIT, TESTS_PASS, said="it still fails for me"))
    assert sure.confidence > 0.95
    assert unsure.confidence < 0.7


def test_an_interruption_is_recognised_by_the_note_of_the_agent() -> None:
    recorded = run(EDIT, TALK)._replace(
        messages=(UserMessage(2, "[Request interrupted by user]", interrupts=True),)
    )
    found = infer(recorded)
    assert (found.solved, found.how) == (False, "the user interrupted it")


def repository(folder: Path, *messages: str) -> Callable[..., str]:
    """A repository with these commits; returns a function that runs git there."""

    def git(*words: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *name, *words], cwd=folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    for message in messages:
        git("commit", "-q", "--allow-empty", "-m", message)
    return git


def test_a_commit_that_is_still_on_a_branch_counts_more_than_one_that_is_gone(
    tmp_path: Path,
) -> None:
    git = repository(tmp_path, "one", "two")
    sha = git("rev-parse", "--short", "HEAD")
    step = shell("git commit -m two", f"[main {sha}] two")
    kept = infer(run(EDIT, step, folder=str(tmp_path)))
    assert (kept.solved, "is still on a branch" in kept.how) == (True, True)
    git("reset", "-q", "--hard", "HEAD~1")
    gone = infer(run(EDIT, step, folder=str(tmp_path)))
    assert (gone.solved, "is no longer on a branch" in gone.how) == (False, True)
    elsewhere = infer(run(EDIT, step, folder="/no/such/folder"))
    assert "it ends with a commit" in elsewhere.how
    pruned = shell("git commit -m two", "[main abcdef1] two")
    assert "abcdef1 is no longer on a branch" in infer(run(EDIT, pruned, folder=str(tmp_path))).how


def test_a_commit_that_was_rebased_or_squashed_is_found_by_its_subject(tmp_path: Path) -> None:
    repository(tmp_path, "one", "Release 3 (#12)\n\n* Accept comments in the parser")
    step = shell(
        "git commit -am x", "[main abcdef1] Accept comments in the parser\n 1 file changed"
    )
    found = infer(run(EDIT, step, folder=str(tmp_path)))
    assert found.solved is True
    assert "its commit abcdef1 is on a branch as " in found.how
    later = step._replace(at_s=4_000_000_000.0)
    assert infer(run(EDIT, later, folder=str(tmp_path))).solved is False, "that one is older"
    short = shell("git commit -am x", "[main abcdef1] one")
    assert infer(run(EDIT, short, folder=str(tmp_path))).solved is False


def test_a_commit_that_was_reverted_counts_against_the_run_unless_the_revert_was(
    tmp_path: Path,
) -> None:
    git = repository(tmp_path, "one")
    (tmp_path / "a").write_text("a")
    git("add", "a")
    git("commit", "-qm", "Accept comments")
    sha = git("rev-parse", "--short", "HEAD")
    recorded = run(EDIT, shell("git commit -m x", f"[main {sha}] x"), folder=str(tmp_path))
    git("revert", "--no-edit", "HEAD")
    undone = infer(recorded)
    by = git("rev-parse", "HEAD")[:7]
    assert (undone.solved, undone.how) == (False, f"its commit {sha} was reverted by {by}")
    git("revert", "--no-edit", "HEAD")
    assert (infer(recorded).solved, "still on a branch" in infer(recorded).how) == (True, True)


def test_a_commit_that_was_amended_is_found_by_its_author_and_time(tmp_path: Path) -> None:
    git = repository(tmp_path, "one", "two")
    sha = git("rev-parse", "--short", "HEAD")
    git("commit", "-q", "--amend", "--allow-empty", "-m", "another message altogether")
    found = infer(run(EDIT, shell("git commit -m two", f"[main {sha}] two"), folder=str(tmp_path)))
    assert found.solved is True
    assert f"its commit {sha} is on a branch as {git('rev-parse', 'HEAD')[:7]}" in found.how


@pytest.mark.parametrize("command", ["cd lib && git commit -m x", "git -C 'lib' commit -m x"])
def test_a_commit_is_looked_up_in_the_repository_where_it_was_made(
    tmp_path: Path, command: str
) -> None:
    repository(tmp_path, "one")
    (tmp_path / "lib").mkdir()
    sha = repository(tmp_path / "lib", "two")("rev-parse", "--short", "HEAD")
    recorded = run(EDIT, shell(command, f"[main {sha}] two"), folder=str(tmp_path))
    assert infer(recorded).how == f"its commit {sha} is still on a branch"


@pytest.mark.parametrize("place", ["$HOME/lib", "~no-such-user/lib", "gone", "'a b'"])
def test_a_commit_in_an_unknown_folder_is_not_called_lost(tmp_path: Path, place: str) -> None:
    repository(tmp_path, "one")
    step = shell(f"cd {place} && git commit -m x", "[main abcdef1] x")
    assert infer(run(EDIT, step, folder=str(tmp_path))).how == "it ends with a commit (abcdef1)"


def test_a_path_that_is_too_long_and_one_relative_to_nothing_are_unknown_folders() -> None:
    """The working folder of the command itself has nothing to do with the recorded run."""
    for command in (f"cd {'a' * 300} && git commit -m x", "cd src && git commit -m x"):
        step = shell(command, "[main abcdef1] x")
        assert infer(run(EDIT, step)).how == "it ends with a commit (abcdef1)"


def test_a_time_relative_to_the_start_of_a_run_is_not_a_commit_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2001-02-03T04:05:06Z")
    repository(tmp_path, "Accept comments in the parser")
    step = shell("git commit -am x", "[main abcdef1] Accept comments in the parser")
    found = infer(run(EDIT, step._replace(at_s=70.0), folder=str(tmp_path)))
    assert "its commit abcdef1 is on a branch as " in found.how


def test_a_repository_cannot_have_a_program_run_by_a_signed_commit(tmp_path: Path) -> None:
    git = repository(tmp_path, "Accept comments in the parser")
    head, message = git("cat-file", "commit", "HEAD").split("\n\n", 1)
    raw = tmp_path / "commit"
    raw.write_text(f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n iQ==\n\n{message}\n")
    git("reset", "-q", git("hash-object", "-t", "commit", "-w", str(raw)))
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    program.chmod(0o700)
    git("config", "log.showSignature", "true")
    git("config", "gpg.program", str(program))
    step = shell("git commit -am x", "[main abcdef1] Accept comments in the parser")
    found = infer(run(EDIT, step, folder=str(tmp_path)))
    assert "its commit abcdef1 is on a branch as " in found.how
    assert not (tmp_path / "was-run").exists()


def test_a_commit_that_is_missing_from_the_repository_is_weak_evidence(tmp_path: Path) -> None:
    """It may have been made in another repository: an earlier `cd` is not in the recording."""
    repository(tmp_path, "one")
    step = shell("git commit -m x", "[main abcdef1] x")
    found = infer(run(EDIT, step, folder=str(tmp_path)))
    assert found.solved is False
    assert found.confidence < DEFAULT_CONFIDENCE


def test_no_inference_is_certain() -> None:
    """Signs of one run are not independent of each other."""
    best = infer(run(EDIT, TESTS_PASS, COMMIT, said="perfect, thanks"))
    worst = infer(run(FAILS, FAILS, FAILS, ended="error", said="revert that, it still fails"))
    assert (best.solved, worst.solved) == (True, False)
    assert best.confidence == worst.confidence == MAX_CONFIDENCE


def test_terminal_output_is_not_a_message_of_the_user(tmp_path: Path) -> None:
    """People end a session with /exit; that is written as two messages of theirs."""
    lines = recording_samples.claude()
    end = {**lines[-1], "type": "user"}
    for words in (
        "thanks, that works",
        "<command-name>/exit</command-name>\n<command-args></command-args>",
        "<local-command-stdout>Goodbye!</local-command-stdout>",
    ):
        lines.append({**end, "message": {"content": words}})
    path = tmp_path / "s.jsonl"
    path.write_text(recording_samples.as_lines(lines))
    [recorded] = runs_in(RecordingFile(str(path)), RecordingTally())
    assert recorded.messages[-1].text == "thanks, that works"
    assert "is positive" in infer(recorded).how


def test_a_session_that_ends_with_an_error_of_the_api_is_unsolved(tmp_path: Path) -> None:
    lines = recording_samples.claude()
    error = {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error: 529"}]}
    broken = {**lines[-1], "isApiErrorMessage": True, "message": error}
    path = tmp_path / "s.jsonl"
    path.write_text(recording_samples.as_lines([*lines, broken]))
    [recorded] = runs_in(RecordingFile(str(path)), RecordingTally())
    assert recorded.ended == "API Error: 529"
    assert "it ended with 'API Error: 529'" in infer(recorded).how
    assert all("API Error" not in str(step.thought) for step in recorded.steps)
    path.write_text(recording_samples.as_lines([*lines[:-1], broken, lines[-1]]))
    [recorded] = runs_in(RecordingFile(str(path)), RecordingTally())
    assert not recorded.ended, "the agent went on"


def test_labels_precede_given_outcomes_recordings_and_inferences() -> None:
    recorded = run(EDIT, TESTS_PASS)
    key = label_key(recorded)
    inferred = OutcomeSources().resolved(recorded)
    assert (inferred.solved, inferred.outcome_from) == (True, "inferred")
    told = OutcomeSources(given={"r1": False}).resolved(recorded)
    assert (told.solved, told.outcome_from) == (False, "given")
    labelled = OutcomeSources({key: False}, {"r1": True}).resolved(recorded)
    assert (labelled.solved, labelled.outcome_from) == (False, "label")
    nobody_knows = OutcomeSources({key: None}).resolved(recorded)
    assert (nobody_knows.solved, nobody_knows.outcome_from) == (None, "label")
    certain = OutcomeSources().resolved(recorded._replace(solved=False))
    assert (certain.solved, certain.outcome_from) == (False, "recording")


def test_an_inference_below_the_confidence_threshold_does_not_count() -> None:
    recorded = run(EDIT, TESTS_FAIL)
    weak = OutcomeSources().resolved(recorded)
    assert (weak.solved, weak.outcome_from) == (None, "")
    assert weak.confidence is not None
    assert OutcomeSources(least_confidence=0.6).resolved(recorded).solved is False
    off = OutcomeSources(least_confidence=None).resolved(run(EDIT, TESTS_PASS))
    assert (off.solved, off.confidence) == (None, None)


def test_ids_are_unique_in_their_file_only_where_a_person_chose_them(tmp_path: Path) -> None:
    plain = RecordedRun("monday", str(tmp_path / "a.jsonl"), "plain")
    other = plain._replace(source=str(tmp_path / "b.jsonl"))
    assert label_key(plain) != label_key(other)
    session = RecordedRun("7f3a", "a.jsonl", "claude")
    assert label_key(session) == label_key(session._replace(source="b.jsonl"))


def test_the_last_answer_counts_and_damaged_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "state" / "labels.jsonl"
    add_label("claude:a", "solved", path)
    add_label("claude:b", "unsolved", path)
    with path.open("ab") as file:
        file.write(b'\xff\n{"key": 1}\n{"key": "claude:c", "answer": "admit", "at_s": 1}\n[]\n')
    add_label("claude:a", "unknown", path)
    add_label("claude:b", "forget", path)
    assert read_labels(path) == {"claude:a": None}
    assert [each.answer for each in all_labels(path)] == ["unknown"]
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ValueError, match="must be one of"):
        add_label("claude:a", "maybe", path)


def test_a_label_after_a_torn_line_is_kept(tmp_path: Path) -> None:
    """A process was killed while it wrote, or the disk was full."""
    path = tmp_path / "state" / "labels.jsonl"
    add_label("claude:a", "solved", path)
    with path.open("ab") as file:
        file.write(b'{"key": "claude:b", "answer": "sol')
    add_label("claude:c", "unsolved", path)
    assert read_labels(path) == {"claude:a": True, "claude:c": False}


def test_a_label_of_a_file_whose_path_cannot_be_examined_counts(tmp_path: Path) -> None:
    path = tmp_path / "state" / "labels.jsonl"
    add_label("plain:a", "solved", path, source=f"/{'a' * 300}", content="plain:content:1")
    assert read_labels(path) == {"plain:a plain:content:1": True, "plain:content:1": True}


def test_labels_that_cannot_be_read_are_an_error_and_not_none(tmp_path: Path) -> None:
    assert read_labels(tmp_path / "labels.jsonl") == {}
    with pytest.raises(OSError, match="directory"):
        read_labels(tmp_path)


# The command


def transcript(folder: Path, session: str, *, solved: bool | None, loops: int = 0) -> None:
    """A session of Claude Code, as it is recorded."""
    lines: list[dict[str, Any]] = []

    def add(kind: str, content: Any) -> None:
        message = {"role": kind, "id": f"m{len(lines)}", "content": content}
        when = f"2026-11-01T10:{len(lines) // 60:02}:{len(lines) % 60:02}Z"
        lines.append({"type": kind, "sessionId": session, "timestamp": when, "message": message})

    def call(name: str, arguments: dict[str, str], result: str, *, bad: bool = False) -> None:
        use = f"t{len(lines)}"
        add("assistant", [{"type": "tool_use", "id": use, "name": name, "input": arguments}])
        done = {"type": "tool_result", "tool_use_id": use, "content": result, "is_error": bad}
        add("user", [done])

    add("user", f"fix the parser ({session})")
    for _ in range(loops):
        call("Bash", {"command": "make"}, "make: *** no rule to make target 'x'", bad=True)
    call("Edit", {"file_path": f"{session}.py"}, f"edited {session}")
    if solved:
        call("Bash", {"command": "pytest -q"}, PASSED)
    add("assistant", [{"type": "text", "text": f"I am done with {session}."}])
    if solved is False:
        add("user", "it still fails with the same error")
    path = folder / f"{session}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".switchgear").mkdir()  # its own project, whatever is in the folders above
    folder = tmp_path / "projects"
    folder.mkdir()
    transcript(folder, "good", solved=True)
    transcript(folder, "bad", solved=False, loops=30)
    transcript(folder, "what", solved=None)
    return folder


def command(*words: str) -> Any:
    return CliRunner().invoke(main, words)


def test_backtest_shows_which_outcomes_are_inferred_and_how(projects: Path) -> None:
    done = command("backtest", str(projects), "--policy", "provider")
    assert done.exit_code == 0, done.output
    assert "outcomes: 2 inferred (at least 70% confidence), 1 unknown" in done.output
    assert "0 of 1 solved" in done.output
    assert "1 of 1 unsolved" in done.output
    assert "unsolved (inferred, 85%: the user's last message complains)" in done.output
    found = json.loads(command("backtest", str(projects), "--json").output)
    assert found["outcomes"] == {"inferred": 2, "unknown": 1}
    rows = {row["id"]: row for row in found["rows"]}
    assert rows["good"]["outcome_how"] == "the last test run passes (12)"
    plain = json.loads(command("backtest", str(projects), "--json", "--no-infer").output)
    assert plain["outcomes"] == {"unknown": 3}


def test_a_label_takes_precedence_over_the_inference_and_can_be_removed(projects: Path) -> None:
    done = command("label", str(projects), "--run", "good", "--outcome", "unsolved")
    assert (done.exit_code, done.output) == (0, "good: unsolved\n")
    assert labels_file().is_file()
    found = json.loads(command("backtest", str(projects), "--json").output)
    assert found["outcomes"] == {"inferred": 1, "label": 1, "unknown": 1}
    assert {row["id"]: row["solved"] for row in found["rows"]}["good"] is False
    assert command("label", str(projects), "--run", "good", "--outcome", "forget").exit_code == 0
    found = json.loads(command("backtest", str(projects), "--json").output)
    assert found["outcomes"] == {"inferred": 2, "unknown": 1}


def test_the_start_of_an_id_is_enough_if_only_one_run_begins_with_it(projects: Path) -> None:
    transcript(projects, "good-2", solved=True)
    done = command("label", str(projects), "--run", "wh", "--outcome", "solved")
    assert (done.exit_code, done.output) == (0, "what: solved\n")
    done = command("label", str(projects), "--run", "go", "--outcome", "solved")
    assert (done.exit_code, "2 runs begin with it" in done.output) == (2, True)
    done = command("label", str(projects), "--run", "good", "--outcome", "unsolved")
    assert (done.exit_code, done.output) == (0, "good: unsolved\n"), "the whole id comes first"
    assert command("label", str(projects), "--run", "", "--outcome", "solved").exit_code == 3
    assert read_labels() == {"claude:what": True, "claude:good": False}


def plain_runs(*ids: str) -> str:
    """Recorded runs in the plain format, which have no id of their own."""
    rows = [
        {
            "id": each,
            "task": "t",
            "steps": [{"tool": "bash", "args": f"make {each}", "result": "ok"}],
        }
        for each in ids
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_a_label_follows_a_file_that_is_moved_and_one_that_grows(projects: Path) -> None:
    old, new = projects / "runs.jsonl", projects / "archive.jsonl"
    old.write_text(plain_runs("a", "b"))
    for run_id, answer in (("a", "solved"), ("b", "unsolved")):
        assert command("label", str(old), "--run", run_id, "--outcome", answer).exit_code == 0
    copied = projects / "copy.jsonl"
    copied.write_text(old.read_text())

    def outcomes(path: Path) -> dict[str, str]:
        rows = json.loads(command("label", str(path), "--json").output)
        return {row["id"]: f"{row['outcome_from']} {row['solved']}" for row in rows}

    assert outcomes(copied) == {"a": " None", "b": " None"}, "the labelled file is still there"
    copied.unlink()
    old.rename(new)
    with new.open("a") as file:
        file.write(plain_runs("c"))
    assert outcomes(new) == {"a": "label True", "b": "label False", "c": " None"}
    command("label", str(new), "--run", "a", "--outcome", "forget")
    assert outcomes(new) == {"a": " None", "b": "label False", "c": " None"}


def test_a_label_does_not_apply_to_another_run_with_the_same_name(projects: Path) -> None:
    """A file that is written anew each night has the same ids; a run that has grown is the same run."""
    path = projects / "runs.jsonl"

    def write(*commands: str) -> None:
        steps = [{"tool": "bash", "args": each, "result": "ok"} for each in commands]
        path.write_text(json.dumps({"id": "monday", "steps": steps}) + "\n")

    def outcome_from() -> str:
        [row] = json.loads(command("label", str(path), "--json").output)
        return str(row["outcome_from"])

    write("make", "make test")
    command("label", str(path), "--run", "monday", "--outcome", "solved")
    assert outcome_from() == "label"
    write("make", "make test", "git diff", "ls", "ls a", "ls b", "ls c")
    assert outcome_from() == "label"
    write("make docs", "make test")
    assert outcome_from() != "label"


def test_a_prompt_shows_when_where_and_how_the_last_steps_ended(
    projects: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = projects / "good.jsonl"
    lines = [{**json.loads(line), "cwd": "/home/me/shop"} for line in path.read_text().splitlines()]
    path.write_text(recording_samples.as_lines(lines))
    rows = label_verb._rows((str(path),), None, 1, hidden=True)
    label_verb._prompt(rows, read_key=lambda: "q")
    shown = capsys.readouterr().out
    assert re.search(r"1 of 1  good  3 steps  \d{4}-\d\d-\d\d [\d:]{8}  shop\n", shown)
    assert "  Bash: pytest -q -> ============ 12 passed in 0.31s" in shown
    assert all(len(line) <= 60 for line in shown.splitlines())


@pytest.mark.parametrize("share", ["80%", "0.8"])
def test_a_confidence_is_a_percentage_or_a_share(projects: Path, share: str) -> None:
    done = command("backtest", str(projects), "--json", "--confidence", share)
    assert json.loads(done.output)["outcomes"] == {"inferred": 1, "unknown": 2}


@pytest.mark.parametrize("share", ["x%", "20%", "101%", "%", "nan%"])
def test_an_invalid_confidence_is_refused(projects: Path, share: str) -> None:
    done = command("backtest", str(projects), "--confidence", share)
    assert (done.exit_code, "--confidence" in done.output) == (2, True)


def test_the_report_shows_which_outcomes_are_inferred_and_how(projects: Path) -> None:
    """A page that calls a stop false must not hide that the outcome is a guess."""
    page = projects / "report.html"
    transcript(projects, "lost", solved=True, loops=30)
    assert command("backtest", str(projects), "--html", str(page)).exit_code == 0
    html = page.read_text()
    assert "solved: a false stop (inferred, 78%: the last test run passes (12))" in html
    assert "outcomes: 3 inferred (at least 70% confidence), 1 unknown" in html


def test_a_backtest_can_evaluate_what_guarded_sessions_have(
    projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is stopped by its score before the progress detector alone would stop it."""
    arguments = (str(projects), "--policy", "session", "--compare", "default", "--json")
    found = json.loads(command("backtest", *arguments).output)
    [stopped] = [row for row in found["rows"] if row["id"] == "bad"]
    session, default = stopped["judged"]
    assert session["tripped_at"] < default["tripped_at"]
    assert session["detector"] == "same_error"
    kinds = {each["kind"] for each in found["policies"][0]["policy"]["detectors"]}
    assert kinds >= {"same_tool", "stagnation", "violation"}
    (projects.parent / "switchgear.yaml").write_text("interventions: {progress: false}\n")
    monkeypatch.setenv("SWITCHGEAR_TRUST", "1")
    found = json.loads(command("backtest", *arguments).output)
    kinds = {each["kind"] for each in found["policies"][0]["policy"]["detectors"]}
    assert "stagnation" not in kinds


def test_an_edit_in_a_recording_counts_as_a_change_as_it_does_for_hooks() -> None:
    """Else every long session would have many calls without a file change."""
    assert EDIT.signal().files_changed == 1
    assert EDIT._replace(changed=None).signal().files_changed is None
    assert EDIT._replace(changed=False).signal().files_changed is None
    iteration = RecordedStep("iteration", changed=True, files_changed=3, is_act=False)
    assert iteration.signal().files_changed == 3


def test_a_backtest_shows_the_measured_trade_off_of_each_preset(projects: Path) -> None:
    arguments = ("--policy", "careful", "--compare", "eager", "--compare", "provider")
    output = " ".join(command("backtest", str(projects), *arguments).output.split())
    for preset in ("careful", "eager"):
        assert f"{preset} on other recorded runs: {MEASURED[preset]}" in output
    assert output.count("on other recorded runs") == 2


def test_a_missing_run_is_reported(projects: Path) -> None:
    assert command("label", str(projects), "--run", "x", "--outcome", "solved").exit_code == 3
    assert command("label", str(projects), "--run", "good").exit_code == 2
    assert command("label").exit_code == 2
    assert command("label", str(projects)).exit_code == 2, "there is no terminal"


def test_the_list_shows_every_run_with_its_outcome(projects: Path) -> None:
    output = command("label", str(projects), "--list").output
    assert "good  probably solved (78%: the last test run passes (12))" in output
    assert "what  unknown" in output
    rows = json.loads(command("label", str(projects), "--json").output)
    assert {row["id"] for row in rows} == {"good", "bad", "what"}


def test_one_key_press_labels_a_run(projects: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = label_verb._rows((str(projects),), None, 1, hidden=True)
    rows.sort(key=lambda row: row.confidence or 0.5)
    assert [row.id for row in rows] == ["what", "good", "bad"], "the least certain comes first"
    keys = iter("?yb\rn\r")
    code = label_verb._prompt(rows, read_key=lambda: next(keys))
    assert code == 0
    labels = read_labels()
    assert labels == {"claude:what": True, "claude:good": False, "claude:bad": False}
    shown = capsys.readouterr().out
    assert shown.count("\n  solved (label)\n") == 1, "going back shows what was answered"
    assert "\n3 runs labelled\n" in shown, "an answer that is given again is no further run"


def test_quitting_keeps_what_was_answered(projects: Path) -> None:
    rows = label_verb._rows((str(projects),), None, 1, hidden=True)
    keys = iter("nq")
    label_verb._prompt(rows, read_key=lambda: next(keys))
    assert len(read_labels()) == 1


def test_tune_works_on_sessions_without_recorded_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of the README: what `~/.claude/projects` holds."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "projects"
    folder.mkdir()
    for number in range(80):
        transcript(folder, f"good{number}", solved=True)
    for number in range(20):
        transcript(folder, f"bad{number}", solved=False, loops=30)
    done = command("tune", str(folder), "--false-stops", "5%", "--json")
    found = json.loads(done.output)
    assert (done.exit_code, found["solved"], found["unsolved"]) == (0, 80, 20), done.output
    assert found["inferred"] == 100
    assert found["proposal"]["held_out"]["catch_rate"]["count"] == 20
    without = command("tune", str(folder), "--false-stops", "5%", "--json", "--no-infer")
    assert json.loads(without.output)["unknown"] == 100


def test_second_opinions_are_compared_with_the_outcomes(projects: Path) -> None:
    with Panel() as panel:
        for session, sentence in (
            ("bad", "confirm: it repeats itself (command judge)"),
            ("good", "confirm: it repeats itself (command judge)"),
            ("good", "delay by up to 3 steps: nearly there (command judge)"),
            ("what", "none: no answer within 20 s (command judge)"),
        ):
            _leave_opinion(panel, session, sentence)
    found = json.loads(command("backtest", str(projects), "--json").output)
    assert found["second_opinions"] == {
        "confirm": {"given": 2, "known": 2, "right": 1},
        "delay": {"given": 1, "known": 1, "right": 1},
        "none": {"given": 1, "known": 0, "right": 0},
    }
    output = command("backtest", str(projects)).output
    assert "second opinion: 2 confirms; 1 of 2 with a known outcome were unsolved" in output


def _leave_opinion(panel: Panel, session: str, sentence: str) -> None:
    from switchgear._config import preset_policy  # noqa: PLC0415
    from switchgear._core.types import EventKind, Override  # noqa: PLC0415

    breaker = panel.breaker(f"session/{session}", preset_policy("stuck"))
    breaker.send(Override("second opinion", sentence, kind=EventKind.SECOND_OPINION))


def test_an_opinion_about_a_run_of_unknown_outcome_is_only_counted() -> None:
    accuracy = OpinionAccuracy()
    accuracy.add("session/r1", "confirm: r (x)")
    accuracy.add("session/r1", "not one of ours")
    accuracy.compare([judge(run(TALK), ()).run])
    assert accuracy.as_values() == {"confirm": {"given": 1, "known": 0, "right": 0}}
