"""From what was typed behind `--policy` to a policy: a name, or a file with policies in it."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

from switchgear._analysis.backtest.replay import Named
from switchgear._breaker.presets import PRESETS
from switchgear._cli.context import load_chosen_config
from switchgear._cli.entry import Fail
from switchgear._config import load_config
from switchgear._config.policies import preset_policy
from switchgear._config.problems import suggestion
from switchgear._core.policy import Policy

_ENDINGS = (".yaml", ".yml", ".toml")


def chosen(text: str, *, code: bool = False) -> Named:
    """The policy: of a file (`FILE`, `FILE#NAME`), of the configuration by its name, or a preset.

    `code`: the file may be a Python module, which is run.
    """
    path, _, name = text.partition("#")
    if path.endswith(".py"):
        if not code:
            raise Fail(f"--policy {text!r}: a Python file works with `switchgear backtest` only")
        return _of_module(path, name)
    if path.endswith(_ENDINGS) or Path(path).is_file():
        return _of_file(path, name)
    named = load_chosen_config().policies
    if text in named:
        return Named(text, named[text])
    if text in PRESETS:
        return Named(text, preset_policy(text))
    near = suggestion(text, [*named, *PRESETS])
    raise Fail(f"--policy {text!r}: there is no such policy, preset or file; {near}")


def _of_module(path: str, name: str) -> Named:
    """A policy of a Python module, imported by its name: other processes import it again."""
    file = Path(path).resolve()
    if not file.is_file() or not file.stem.isidentifier():
        raise Fail(f"--policy {path!r}: there is no such file, or its name is no name of a module")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    try:
        module = importlib.import_module(file.stem)
    except Exception as error:
        raise Fail(f"--policy {path!r}: {type(error).__name__}: {error}") from error
    if Path(module.__file__ or "").resolve() != file:
        raise Fail(f"--policy {path!r}: another module is named {file.stem!r}; rename the file")
    policies = {key: value for key, value in vars(module).items() if isinstance(value, Policy)}
    return _one_of(path, name, policies, "a variable that holds a Policy is one")


def _of_file(path: str, name: str) -> Named:
    return _one_of(path, name, load_config(path).policies, "`policies:` names them")


def _one_of(path: str, name: str, policies: Mapping[str, Policy], how: str) -> Named:
    if name in policies:
        return Named(name, policies[name])
    if not name and len(policies) == 1:
        [(only, policy)] = policies.items()
        return Named(only, policy)
    if not policies:
        raise Fail(f"--policy {path!r}: the file has no policies; {how}")
    known = ", ".join(sorted(policies))
    if name:
        raise Fail(f"--policy {path + '#' + name!r}: the file has no such policy; it has {known}")
    raise Fail(
        f"--policy {path!r}: the file has {len(policies)} policies; add #NAME, one of {known}"
    )
