"""Runs the escalation agent, which takes over from a stuck agent, with the evidence, and logs it.

It runs as `detached.py …/escalation_agent.py FOLDER AGENT EVIDENCE LOG`. AGENT is the name of an agent or a
command, which works in FOLDER. Its prompt contains the text of the file EVIDENCE, and the variable
SWITCHGEAR_EVIDENCE contains the file's path.
"""

import os
from collections.abc import Callable

from switchgear._agents.process import AgentProcess, ProcessEnd
from switchgear._agents.registry import agent_or_command

DEADLINE_S = 3600.0
PROMPT = (
    "Another agent was working here and was stopped, because it was stuck. Take over: find out why "
    "it got nowhere, fix that, and leave the work in a good state. What is known about it:"
)


def main(argv: list[str]) -> int:
    """Run the escalation agent, and log its events. Returns 0 if it succeeded."""
    folder, agent, evidence, log = argv[1:5]
    with open(log, "a", encoding="utf-8", errors="replace") as file:
        try:
            return _run_agent(
                folder, agent, evidence, lambda text: print(text, file=file, flush=True)
            )
        except (OSError, ValueError) as error:
            print(f"[end] the escalation agent {agent!r} could not be run: {error}", file=file)
            return 1


def _run_agent(folder: str, agent: str, evidence: str, write: Callable[[object], None]) -> int:
    with open(evidence, encoding="utf-8", errors="replace") as file:
        prompt = f"{PROMPT}\n\n{file.read()}\n"
    process = AgentProcess(
        agent_or_command(agent),
        prompt,
        folder,
        env={**os.environ, "SWITCHGEAR_EVIDENCE": evidence},
        deadline_s=DEADLINE_S,
        on_event=write,
    )
    run = process.run()
    write(f"[end] {run.end.value}, exit code {run.exit_code}\n{run.problem or run.tail}")
    return 0 if run.end is ProcessEnd.EXITED and run.exit_code == 0 else 1
