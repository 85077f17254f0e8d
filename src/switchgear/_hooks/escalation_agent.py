"""Runs the escalation agent, which takes over from a stuck agent, with the evidence, and logs it.

Run as `python -I -S …/helper.py FOLDER WHO EVIDENCE LOG`; it works in the folder. WHO is an agent's
name or a command. It gets the evidence in its prompt, and the file's name in SWITCHGEAR_EVIDENCE.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

LONGEST_S = 3600.0
TAKE_OVER = (
    "Another agent was working here and was stopped, because it was stuck. Take over: find out why "
    "it got nowhere, fix that, and leave the work in a good state. What is known of it:"
)


def main(argv: list[str]) -> int:
    """Run the help; 0 if it ended well. Whatever happens is in the log."""
    folder, who, evidence, log = argv[1:5]
    with open(log, "a", encoding="utf-8", errors="replace") as file:
        try:
            return _run(folder, who, evidence, lambda text: print(text, file=file, flush=True))
        except (OSError, ValueError) as error:
            print(f"[end] the help {who!r} could not be run: {error}", file=file)
            return 1


def _run(folder: str, who: str, evidence: str, write: Callable[[object], None]) -> int:
    from switchgear._agents.process import AgentProcess, ProcessEnd  # noqa: PLC0415  found only now
    from switchgear._agents.registry import agent_or_command  # noqa: PLC0415

    with open(evidence, encoding="utf-8", errors="replace") as file:
        prompt = f"{TAKE_OVER}\n\n{file.read()}\n"
    process = AgentProcess(
        agent_or_command(who),
        prompt,
        folder,
        env={**os.environ, "SWITCHGEAR_EVIDENCE": evidence},
        deadline_s=LONGEST_S,
        on_event=write,
    )
    run = process.run()
    write(f"[end] {run.end.value}, exit code {run.exit_code}\n{run.problem or run.tail}")
    return 0 if run.end is ProcessEnd.EXITED and run.exit_code == 0 else 1


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the starting process need not wait
    os.setsid()
    package: Any = type(sys)("switchgear")
    package.__path__ = [__file__.rpartition("/_hooks/")[0]]
    sys.modules["switchgear"] = package
    sys.exit(main(sys.argv))
