"""The host of a session: which hosts are distinguished, and which are the same under another name."""

import os
from pathlib import Path

import pytest

from switchgear._hooks import session
from switchgear._hooks.session import folder_id, host_id, process_exists


def test_a_folder_mark_follows_links_and_differs_between_folders(tmp_path: Path) -> None:
    one, other, link = tmp_path / "one", tmp_path / "other", tmp_path / "link"
    one.mkdir()
    other.mkdir()
    link.symlink_to(one)
    assert folder_id(str(link)) == folder_id(str(one)) != folder_id(str(other))
    assert folder_id(str(tmp_path / "none")) == ""


def test_a_machine_without_an_id_is_identified_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_BOOT_ID", "_PID_NAMESPACE"):
        monkeypatch.setattr(session, name, str(tmp_path / "none"))
    assert host_id() == os.uname().nodename


def test_ids_without_a_process_are_not_alive() -> None:
    assert process_exists(os.getpid())
    assert [process_exists(number) for number in (0, 2**22 + 1, 2**80)] == [False, False, False]
