"""A folder is transferred unchanged, and the work is applied only to the folder that was sent."""

import subprocess
from pathlib import Path

import pytest

from switchgear._remote import parcel
from switchgear._remote.job import Parcel
from switchgear._remote.parcel import (
    REFERENCE,
    TransferError,
    UnpackedStarts,
    apply,
    bring,
    bundled,
    drop,
    receive,
    saved,
    snapshot,
    unpack,
)
from switchgear._text.redact import redact

WHO = ("-c", "user.name=t", "-c", "user.email=t@localhost")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "committed").write_text("one\n")
    (folder / "gone").write_text("gone\n")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    (folder / "committed").write_text("two\n")
    (folder / "new").write_bytes(b"\x00\xff binary")
    (folder / "ignored").write_text("stays here")
    (folder / "gone").unlink()
    return folder


def sent(project: Path, place: Path) -> tuple[Parcel, Path]:
    found = snapshot(project, "r1")
    reference = "HEAD" if found.is_clean else f"{REFERENCE}/r1"
    parcel = Parcel("p:1", found.commit, found.head, reference)
    other = place / "worker"
    unpack(bundled(project, reference), other, parcel)
    return parcel, other


def brought(project: Path, other: Path, start: Parcel, place: Path) -> Parcel:
    """Work of another host, received as `refs/switchgear/runs/r1`."""
    commit = saved(other, place / "notes", "transfer/w")
    head = git(other, "rev-parse", "HEAD").strip()
    bundle = bundled(other, f"{REFERENCE}/w", without=(start.commit,))
    receive(bundle, project, f"{REFERENCE}/w", "refs/switchgear/runs/r1")
    return Parcel("w:1", commit, head, f"{REFERENCE}/w")


def test_a_symbolic_reference_in_place_of_ours_moves_and_removes_no_branch(
    project: Path, tmp_path: Path
) -> None:
    branch, start = git(project, "symbolic-ref", "HEAD").strip(), git(project, "rev-parse", "HEAD")
    for place in (f"{REFERENCE}/r1", "refs/switchgear/runs/r1"):
        git(project, "symbolic-ref", place, branch)
    parcel, other = sent(project, tmp_path)
    assert git(project, "rev-parse", f"{REFERENCE}/r1").strip() == parcel.commit
    brought(project, other, parcel, tmp_path)
    git(project, "symbolic-ref", f"{REFERENCE}/r1", branch)
    drop(project, ("r1",))
    assert git(project, "rev-parse", branch) == start


def test_the_state_arrives_with_its_uncommitted_changes(project: Path, tmp_path: Path) -> None:
    before = git(project, "status", "--porcelain")
    _, other = sent(project, tmp_path)
    assert git(other, "status", "--porcelain") == before == git(project, "status", "--porcelain")
    assert (other / "new").read_bytes() == b"\x00\xff binary"
    assert not (other / "ignored").exists()
    assert git(other, "log", "--format=%s") == "start\n"


def test_the_work_comes_back(project: Path, tmp_path: Path) -> None:
    commit, other = sent(project, tmp_path)
    (other / "new").write_bytes(b"changed\x00")
    (other / "sub").mkdir()
    (other / "sub" / "added").write_text("added\n")
    (other / "committed").unlink()
    work = brought(project, other, commit, tmp_path)
    for _ in range(2):  # idempotent
        assert apply(project, commit, work, "now") is None
        assert (project / "new").read_bytes() == b"changed\x00"
        assert (project / "sub" / "added").read_text() == "added\n"
        assert not (project / "committed").exists()
        assert (project / "ignored").read_text() == "stays here"
    assert git(project, "log", "--format=%s") == "start\n"


@pytest.mark.parametrize("setting", ["diff.noprefix=true", "color.ui=always"])
def test_the_work_comes_back_whatever_diffs_look_like_for_the_user(
    project: Path, tmp_path: Path, setting: str
) -> None:
    git(project, "config", *setting.split("="))
    start, other = sent(project, tmp_path)
    (other / "new").write_bytes(b"\xff\r\n\x00 changed")
    (other / "caf\u00e9 \t1").write_text("added\n")
    work = brought(project, other, start, tmp_path)
    assert apply(project, start, work, "now") is None
    assert (project / "new").read_bytes() == b"\xff\r\n\x00 changed"
    assert (project / "caf\u00e9 \t1").read_text() == "added\n"


def test_a_failed_push_names_its_command(project: Path, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match=r"refs/x could not be pushed: git push in "):
        parcel.push(project, str(tmp_path / "nothing"), "HEAD", "refs/x")


def test_commits_of_the_agent_come_back_as_commits(project: Path, tmp_path: Path) -> None:
    commit, other = sent(project, tmp_path)
    git(other, "add", "-A")
    git(other, "commit", "-qm", "by the agent")
    (other / "later").write_text("uncommitted\n")
    work = brought(project, other, commit, tmp_path)
    assert apply(project, commit, work, "now") is None
    assert git(project, "log", "--format=%s") == "by the agent\nstart\n"
    assert git(project, "status", "--porcelain") == "?? later\n"


def test_staged_changes_of_the_user_stay_staged_when_the_agent_has_committed(
    project: Path, tmp_path: Path
) -> None:
    git(project, "add", "committed", "new")
    (project / "committed").write_text("three\n")
    before = git(project, "ls-files", "-s")
    commit, other = sent(project, tmp_path)
    (other / "added").write_text("by the agent\n")
    git(other, "add", "added")
    git(other, "commit", "-qm", "by the agent")
    work = brought(project, other, commit, tmp_path)
    assert apply(project, commit, work, "now") is None
    assert git(project, "log", "--format=%s") == "by the agent\nstart\n"
    after = git(project, "ls-files", "-s")
    assert sorted(line for line in after.splitlines() if "\tadded" not in line) == sorted(
        before.splitlines()
    )
    status = git(project, "status", "--porcelain").splitlines()
    assert sorted(status) == [" D gone", "A  new", "MM committed"]


def test_a_folder_that_changed_meanwhile_is_left_as_it_is(project: Path, tmp_path: Path) -> None:
    commit, other = sent(project, tmp_path)
    (other / "new").write_text("from the worker\n")
    work = brought(project, other, commit, tmp_path)
    (project / "new").write_text("by the user\n")
    problem = apply(project, commit, work, "now")
    assert problem is not None
    assert "was changed while the task was running elsewhere" in problem
    assert (project / "new").read_text() == "by the user\n"
    assert git(project, "show", "refs/switchgear/runs/r1:new") == "from the worker\n"


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("was_detached", [True, False])
def test_work_reaches_only_the_branch_that_was_checked_out(
    project: Path, tmp_path: Path, *, commits: bool, was_detached: bool
) -> None:
    git(project, "checkout", "-q", *(["--detach"] if was_detached else ["-b", "one"]))
    was = snapshot(project, "r1")
    start, other = sent(project, tmp_path)
    (other / "committed").write_text("by the agent\n")
    if commits:
        git(other, "commit", "-qam", "by the agent")
    work = brought(project, other, start, tmp_path)
    git(project, "checkout", "-q", "-b", "mine")
    before = git(project, "for-each-ref", "refs/heads"), git(project, "status", "--porcelain")
    expected = was.head[:12] if was_detached else "one"
    detached = [] if was_detached else [("--detach", was.head[:12])]
    for new, name in (("mine", "mine"), *detached):
        git(project, "checkout", "-q", new)
        assert apply(project, start, work, "now", branch=was.branch) == (
            f"{project} has {name} checked out instead of {expected}; nothing was applied; check out "
            f"{expected} and merge the work, or merge it into {name}"
        )
        after = git(project, "for-each-ref", "refs/heads"), git(project, "status", "--porcelain")
        assert after == before
        assert (project / "committed").read_text() == "two\n"
    git(project, "checkout", "-q", "--detach" if was_detached else "one")
    assert apply(project, start, work, "now", branch=was.branch) is None
    assert (project / "committed").read_text() == "by the agent\n"
    git(project, "checkout", "-q", "-b", "later")
    assert apply(project, start, work, "now", branch=was.branch) is None, "it is there already"


def test_the_index_of_the_user_stays_unchanged(project: Path) -> None:
    git(project, "add", "new")
    before = git(project, "ls-files", "-s"), git(project, "status", "--porcelain")
    snapshot(project, "r1")
    assert (git(project, "ls-files", "-s"), git(project, "status", "--porcelain")) == before


def test_a_folder_without_a_repository_or_a_commit_reports_it(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="not in a git repository"):
        snapshot(tmp_path, "r1")
    git(tmp_path, "init", "-q")
    with pytest.raises(TransferError, match="has no commit yet"):
        snapshot(tmp_path, "r1")


def test_a_start_that_is_known_is_neither_fetched_nor_unpacked_again(
    project: Path, tmp_path: Path
) -> None:
    start, other = sent(project, tmp_path)
    bundle, fetched = bundled(project, start.reference), []
    starts = UnpackedStarts(tmp_path / "starts")

    def fetch() -> bytes:
        fetched.append(1)
        return bundle

    folders = [tmp_path / f"job-{number}" for number in range(3)]
    for number, folder in enumerate(folders):
        starts.unpack(fetch, folder, start, "")
        for words in (("status", "--porcelain"), ("rev-parse", "HEAD"), ("branch",)):
            assert git(folder, *words) == git(other, *words)
        assert (folder / "new").read_bytes() == b"\x00\xff binary"
        # What an agent does to its repository reaches no other task.
        git(folder, "config", "core.hooksPath", "evil")
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/broken\n")
        assert len(fetched) == 1, number
    (kept,) = (tmp_path / "starts").iterdir()
    for file in (kept / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"damaged")
    starts.unpack(fetch, folders[0], start, "")
    assert len(fetched) == 2, "a damaged one is replaced"
    assert git(folders[0], "status", "--porcelain") == git(other, "status", "--porcelain")


def test_a_worker_keeps_only_the_latest_starts(project: Path, tmp_path: Path) -> None:
    start, _ = sent(project, tmp_path)
    bundle = bundled(project, start.reference)
    starts = UnpackedStarts(tmp_path / "starts")
    for number in range(parcel.MAX_STARTS + 3):
        starts.unpack(lambda: bundle, tmp_path / "job", start._replace(name=f"p{number}:1"), "")
    assert len([*(tmp_path / "starts").iterdir()]) == parcel.MAX_STARTS


def test_a_start_that_two_threads_keep_at_once_is_kept_once(project: Path, tmp_path: Path) -> None:
    parcel, other = sent(project, tmp_path)
    starts = UnpackedStarts(tmp_path / "starts")
    starts.unpack(lambda: bundled(project, parcel.reference), tmp_path / "one", parcel, "")
    [kept] = (tmp_path / "starts").iterdir()
    starts._cache(other, kept)
    assert [*(tmp_path / "starts").iterdir()] == [kept]


def test_an_empty_folder_in_which_nothing_was_done_stays_empty(tmp_path: Path) -> None:
    project = tmp_path / "empty"
    project.mkdir()
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "start")
    start, other = sent(project, tmp_path)
    work = brought(project, other, start, tmp_path)
    assert apply(project, start, work, "now") is None


def test_a_bundle_with_missing_prerequisites_is_reported(project: Path, tmp_path: Path) -> None:
    start, other = sent(project, tmp_path)
    (other / "more").write_text("more\n")
    saved(other, tmp_path / "notes", "transfer/w")
    bundle = bundled(other, f"{REFERENCE}/w", without=(start.commit,))
    strange = tmp_path / "strange"
    strange.mkdir()
    git(strange, "init", "-q")
    with pytest.raises(TransferError, match="the repository lacks"):
        receive(bundle, strange, f"{REFERENCE}/w", "refs/switchgear/runs/r1")


def test_a_bundle_of_many_objects_arrives_whole(project: Path, tmp_path: Path) -> None:
    for number in range(150):
        (project / f"file-{number}").write_text(f"{number}\n" * 20)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "many")
    _, other = sent(project, tmp_path)
    assert (other / "file-149").read_text() == "149\n" * 20
    assert git(other, "fsck", "--strict") == ""


def test_a_damaged_bundle_reports_it(project: Path) -> None:
    with pytest.raises(TransferError, match="could not be read"):
        receive(b"no bundle", project, "HEAD", "refs/switchgear/runs/r1")


def test_a_repository_that_every_host_can_fetch_carries_the_history(
    project: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared.git"
    git(tmp_path, "clone", "-q", "--bare", str(project), str(shared))
    head = git(project, "rev-parse", "HEAD").strip()
    found = snapshot(project, "r1")
    small = bundled(project, f"{REFERENCE}/r1", without=(head,))
    other = tmp_path / "worker"
    unpack(small, other, Parcel("p:1", found.commit, head, f"{REFERENCE}/r1"), str(shared))
    (other / "new").write_text("pushed\n")
    work = saved(other, tmp_path / "notes", "transfer/w")
    parcel.push(other, str(shared), work, "refs/switchgear/runs/r1")
    assert git(shared, "show", "refs/switchgear/runs/r1:new") == "pushed\n"


def test_a_folder_without_changes_is_packed_as_its_head(project: Path, tmp_path: Path) -> None:
    git(project, "add", "-A")
    git(project, "commit", "-qm", "all of it")
    refs = git(project, "for-each-ref")
    start, other = sent(project, tmp_path)
    assert (start.reference, git(project, "for-each-ref")) == ("HEAD", refs)
    (other / "new").unlink()
    (other / "more").write_text("more\n")
    work = brought(project, other, start, tmp_path)
    assert apply(project, start, work, "now") is None
    assert git(project, "status", "--porcelain") == " D new\n?? more\n"


def test_a_message_about_a_repository_contains_no_password(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcel, "run_git", lambda *_: "another commit\n")
    work = Parcel("", "c" * 40, "h" * 40, "refs/switchgear/runs/r")
    with pytest.raises(TransferError) as caught:
        bring(bytes, project, work, "https://me:pass-word-1@git.example/x", "refs/switchgear/work")
    assert "git.example/x is not the work that was saved" in str(caught.value)
    assert "pass-word-1" not in str(caught.value)


def test_a_repository_that_cannot_be_fetched_is_named_with_the_cause_in_front(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ("a-long-name-of-a-folder" * 8)
    missing = "https://me:pass-word-1@127.0.0.1:1/x.git"
    with pytest.raises(TransferError) as caught:
        unpack(b"", folder, Parcel("", "c" * 40, "c" * 40, "HEAD"), missing)
    shown = redact(str(caught.value))
    assert "127.0.0.1:1/x.git could not be fetched: fatal: unable to access" in shown
    assert "pass-word-1" not in str(caught.value)


@pytest.mark.parametrize("name", ["ignored", "folder", "folder/below"])
def test_an_ignored_file_that_the_worker_did_not_have_is_not_replaced(
    project: Path, tmp_path: Path, name: str
) -> None:
    """The agent removes the .gitignore and adds a file of the same name."""
    (project / ".gitignore").write_text("ignored\nfolder\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "clean")
    (project / "folder").write_text("private\n")
    start, other = sent(project, tmp_path)
    (other / ".gitignore").unlink()
    (other / name).parent.mkdir(exist_ok=True)
    (other / name).write_text("from the worker\n")
    work = brought(project, other, start, tmp_path)
    problem = apply(project, start, work, "now")
    assert problem is not None
    assert "which git ignores or another repository has, would be replaced" in problem
    assert (project / "ignored").read_text() == "stays here"
    assert (project / "folder").read_text() == "private\n"
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize("where", ["project", "worker"])
def test_a_packed_file_that_git_ignores_does_not_count_as_deleted(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It was added by force and never committed, or only the host of the worker ignores it."""
    name = "ignored" if where == "project" else "new"
    if where == "project":
        git(project, "add", "--force", name)
    found = snapshot(project, "r1")
    start = Parcel("p:1", found.commit, found.head, f"{REFERENCE}/r1")
    bundle, before = bundled(project, start.reference), (project / name).read_bytes()
    if where == "worker":
        rules = tmp_path / "config" / "git" / "ignore"
        rules.parent.mkdir(parents=True)
        rules.write_text("new\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    first, second = tmp_path / "first", tmp_path / "second"
    unpack(bundle, first, start)
    (first / "committed").write_text("three\n")
    work = brought(project, first, start, tmp_path)
    unpack(bundle, second, start)
    bundle = bundled(first, work.reference, without=(start.commit,))
    receive(bundle, second, work.reference, f"{REFERENCE}/work")
    assert apply(second, start, work, "now") is None
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert apply(project, start, work, "now") is None
    for folder in (second, project):
        assert (folder / name).read_bytes() == before
        assert (folder / "committed").read_text() == "three\n"


def test_a_file_of_a_submodule_that_was_not_sent_is_not_replaced(
    project: Path, tmp_path: Path
) -> None:
    git(project, "init", "-q", "sub")
    (project / "sub" / "file").write_text("of the submodule\n")
    git(project / "sub", "add", "file")
    git(project / "sub", "commit", "-qm", "sub")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "with a submodule")
    start, other = sent(project, tmp_path)
    (other / "sub").mkdir(exist_ok=True)
    (other / "sub" / "file").write_text("from the worker\n")
    work = brought(project, other, start, tmp_path)
    problem = apply(project, start, work, "now")
    assert problem is not None
    assert problem.startswith(str(project / "sub" / "file"))
    assert (project / "sub" / "file").read_text() == "of the submodule\n"


def test_a_file_that_becomes_a_folder_comes_back(project: Path, tmp_path: Path) -> None:
    git(project, "add", "-A")
    git(project, "commit", "-qm", "clean")
    start, other = sent(project, tmp_path)
    (other / "committed").unlink()
    (other / "committed").mkdir()
    (other / "committed" / "inside").write_text("x\n")
    work = brought(project, other, start, tmp_path)
    assert apply(project, start, work, "now") is None
    assert (project / "committed" / "inside").read_text() == "x\n"


def test_work_on_a_separate_history_is_applied_and_leaves_head(
    project: Path, tmp_path: Path
) -> None:
    start, other = sent(project, tmp_path)
    git(other, "checkout", "-q", "--orphan", "own")
    git(other, "commit", "-qam", "unrelated")
    (other / "later").write_text("x")
    work = brought(project, other, start, tmp_path)
    before = git(project, "rev-parse", "HEAD")
    assert apply(project, start, work, "now") is None
    assert (project / "later").read_text() == "x"
    assert git(project, "rev-parse", "HEAD") == before
