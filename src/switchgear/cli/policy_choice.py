"""From what was typed behind `--policy` to a policy: a name, or a file with policies in it."""

from pathlib import Path

from switchgear.backtest.replay import Named
from switchgear.cli.entry import Fail
from switchgear.cli.opening import load_chosen_config
from switchgear.config import load_config
from switchgear.config.policies import preset_policy
from switchgear.config.problems import suggestion
from switchgear.presets import PRESETS

_ENDINGS = (".yaml", ".yml", ".toml")


def chosen(text: str) -> Named:
    """The policy: of a file (`FILE`, `FILE#NAME`), of the configuration by its name, or a preset."""
    path, _, name = text.partition("#")
    if path.endswith(_ENDINGS) or Path(path).is_file():
        return _of_file(path, name)
    named = load_chosen_config().policies
    if text in named:
        return Named(text, named[text])
    if text in PRESETS:
        return Named(text, preset_policy(text))
    near = suggestion(text, [*named, *PRESETS])
    raise Fail(f"--policy {text!r}: there is no such policy, preset or file; {near}")


def _of_file(path: str, name: str) -> Named:
    policies = load_config(path).policies
    if name in policies:
        return Named(name, policies[name])
    if not name and len(policies) == 1:
        [(only, policy)] = policies.items()
        return Named(only, policy)
    if not policies:
        raise Fail(f"--policy {path!r}: the file has no policies; `policies:` names them")
    known = ", ".join(sorted(policies))
    if name:
        raise Fail(f"--policy {path + '#' + name!r}: the file has no such policy; it has {known}")
    raise Fail(
        f"--policy {path!r}: the file has {len(policies)} policies; add #NAME, one of {known}"
    )
