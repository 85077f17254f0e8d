"""The tasks of a hook after its response: show a notice, start the escalation agent.

The escalation agent is a process of its own, which no hook waits for. Its input is on its command line
and in a file; it inherits the environment of the hook.
"""

import os
import sys

from switchgear._agents.hook_protocol import Errand
from switchgear._hooks.interrupt import show_headless
from switchgear._stores.url import default_file, keep_out_of_git
from switchgear._text.digest import digest

HELP = "help"
"""The folder beside the store in which evidence for the help lies, and what became of it."""
_HERE = os.path.dirname(os.path.abspath(__file__))


def run(errand: Errand, pid: int | None) -> None:
    """Do the tasks, as far as possible. `pid` is the process of the agent, if it is known."""
    try:
        if errand.notice:
            show_headless(errand.agent, errand.notice, pid)
        if errand.opinion:
            from switchgear._hooks.opinions import start  # noqa: PLC0415  only where configured

            start(errand.opinion, errand.root, errand.cwd)
        if errand.evidence and errand.escalate:
            start_help(errand.escalate, errand.evidence, errand.session, errand.cwd, errand.root)
    except OSError:
        return


def start_help(
    escalate: str, evidence: str, subject: str, cwd: str = "", root: str | None = None
) -> str:
    """Let the help take over, with the evidence in a file. Returns where its log is.

    `escalate` is an agent's name or a command, `subject` who is stuck; it works in `cwd`.
    """
    folder = os.path.join(os.path.dirname(default_file(root or os.getcwd())), HELP)
    keep_out_of_git(os.path.dirname(folder))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = digest(f"{subject}\0{evidence}\0{os.getpid()}")
    path, log = (os.path.join(folder, f"{name}.{kind}") for kind in ("txt", "log"))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, evidence.encode(errors="replace"))
    finally:
        os.close(file)
    spawn("escalation_agent.py", cwd or root or os.getcwd(), escalate, path, log)
    return log


def spawn(script: str, folder: str, *arguments: str, given: bytes = b"") -> None:
    """Start one of our scripts in a folder: no terminal, our environment, `given` on its input.

    It lets go of us by itself at once, into a session of its own: nobody waits for it, and nothing
    is left of it.
    """
    python = sys.executable
    argv = [python, "-I", "-S", os.path.join(_HERE, script), folder, *arguments]
    nothing = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    if not given:
        os.waitpid(os.posix_spawn(python, argv, os.environ, file_actions=nothing), 0)
        return
    reading, writing = os.pipe()
    try:
        actions = [*nothing, (os.POSIX_SPAWN_DUP2, reading, 0)]
        child = os.posix_spawn(python, argv, os.environ, file_actions=actions)
        os.close(reading)
        reading = -1
        left = given
        while left:
            left = left[os.write(writing, left) :]
        os.close(writing)
        writing = -1
        os.waitpid(child, 0)
    finally:
        for end in (reading, writing):
            if end >= 0:
                os.close(end)
