"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE (`ci` where the environment variable CI is set).

- `default`: `make test` on a developer's machine; new examples in each run.
- `ci`: the same examples in each run, so that a change is not judged by chance.
- `stress`: `make stress`; many examples, the same in each run.
- `mutants`: few and fixed examples, no shrinking; one run per mutant must be quick.
- `deep`: for a night, or after a change of the state machine.
"""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from depth import is_kept

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("default", deadline=None, max_examples=10)
settings.register_profile("ci", deadline=None, max_examples=10, derandomize=True, print_blob=True)
settings.register_profile(
    "stress", deadline=None, max_examples=500, derandomize=True, suppress_health_check=QUIET
)
settings.register_profile("deep", deadline=None, max_examples=3000, suppress_health_check=QUIET)
settings.register_profile(
    "mutants",
    deadline=None,
    max_examples=15,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=QUIET,
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)

# What tests trust and install is not the developer's: they have a state folder of their own. The
# configurations that tests write are theirs, as those of a CI job are; hooks ignore this variable.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="switchgear-tests-")
os.environ["SWITCHGEAR_TRUST"] = "1"
os.environ.pop("XDG_RUNTIME_DIR", None)
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


# Resident processes that hooks of tests start end soon after the last event.
os.environ["SWITCHGEAR_RESIDENT"] = "30"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect the cases that only `make stress` runs."""
    for item in items:
        if not is_kept(getattr(item, "originalname", item.name), item.name):
            item.add_marker(pytest.mark.stress)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collected tests, some million objects, out of each garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: many tests wait for other processes."""
    return 2 * (os.cpu_count() or 1)


@pytest.fixture(scope="session", autouse=True)
def _no_resident_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ends the resident processes whose sockets are in folders of this run, by their numbers."""
    yield
    folders = (str(tmp_path_factory.getbasetemp()), os.environ["XDG_STATE_HOME"])
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError, ValueError):
            words = entry.read_bytes().decode(errors="replace").split("\0")
            if "_hooks/resident.py" in "".join(words[3:4]) and words[4].startswith(folders):
                os.kill(int(entry.parent.name), signal.SIGTERM)


# A shell starts background jobs with SIGINT ignored, `nohup` with SIGHUP, and children inherit that:
# a test that signals a command would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
