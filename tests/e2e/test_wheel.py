"""The built wheel in an empty environment: the command, the hook, the plugin of pytest, uvx and pipx."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.stress, pytest.mark.timeout(900)]


def done(*words: object, cwd: Path, **env: str) -> str:
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", folder, ROOT, cwd=folder)
    [found] = folder.glob("*.whl")
    return found


def test_the_wheel_holds_the_package_and_the_plugin_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "switchgear",
        "switchgear_pytest.py",
    }
    assert "switchgear/hooks/entry.py" in names
    assert "switchgear/py.typed" in names


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    done(sys.executable, "-m", "venv", "empty", cwd=tmp_path)
    binaries = tmp_path / "empty" / "bin"
    done(binaries / "python", "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert "switchgear" in done(binaries / "switchgear", "--version", cwd=tmp_path, **home)
    assert "no circuit" in done(binaries / "switchgear", "status", cwd=tmp_path, **home).lower()
    done(binaries / "switchgear", "selftest", cwd=tmp_path, **home)
    done(
        binaries / "python", "-c", "import switchgear; switchgear.CircuitBreaker('a')", cwd=tmp_path
    )


@pytest.mark.parametrize("runner", ["uvx", "pipx"])
def test_the_wheel_runs_from_a_file(runner: str, wheel: Path, tmp_path: Path) -> None:
    if shutil.which(runner) is None:
        pytest.skip(f"{runner} is not installed")
    words = (
        ("uvx", "--from", wheel, "switchgear", "--version")
        if runner == "uvx"
        else ("pipx", "run", "--spec", wheel, "switchgear", "--version")
    )
    assert "switchgear" in done(*words, cwd=tmp_path)
