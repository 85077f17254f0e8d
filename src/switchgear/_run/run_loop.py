"""The loop of `switchgear run` for programs: the same runner, the same folder of files, no terminal."""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from switchgear._agents.base import Agent
from switchgear._agents.process import missing_program
from switchgear._agents.registry import agent_named, agent_of_command
from switchgear._core.errors import SwitchgearError
from switchgear._panel.panel import Panel
from switchgear._run.circuits import loop_breaker, loop_name, policy_of, task_name
from switchgear._run.dependencies import Setting
from switchgear._run.interrupt import Interrupt
from switchgear._run.loop import Runner
from switchgear._run.options import RunOptions, checked
from switchgear._run.price_coverage import coverage
from switchgear._run.receipt import receipt_of
from switchgear._run.record import new_run, runs_root
from switchgear._run.result import RunResult
from switchgear._run.run_lock import folder_lock, task_lock
from switchgear._run.run_notice import announce, failures, targets_of
from switchgear._run.view import View


class LoopRefused(SwitchgearError):
    """A loop did not start, and nothing was run.

    Its circuit is open, its agent is not installed, or its budget cannot be enforced.
    """


def run_loop(
    options: RunOptions,
    *,
    folder: str | Path | None = None,
    panel: Panel | None = None,
    view: View | None = None,
    interrupt: Interrupt | None = None,
    notify: Iterable[str] = (),
) -> RunResult:
    """Run an agent in a loop until it is done or must stop, as `switchgear run` does.

    - `options`: `RunOptions(task=…, agent="claude", …)`; each field is an option of the command.
      Limits that differ from their defaults count as set.
    - `folder`: where the agent works; default: the working directory.
    - `panel`: the circuits; default: those of the project, `Panel()`.
    - `view`: receives what happens, as it happens; default: nothing is shown.
    - `interrupt`: `interrupt.ask()` from any thread ends the run gently.
    - `notify`: targets that are told when it ended, as those of `--notify`.

    Blocks until the run has ended. Returns the result: `exit_reason`, `exit_signal`, `reason`,
    `stats`, `receipt()` and more. Raises ValueError for options that cannot be followed,
    `LoopRefused` when it did not start, `RunConflict` when another process runs the task.

    >>> result = run_loop(RunOptions("say hello", agent="demo:claims-done"))  # doctest: +SKIP
    >>> result.exit_reason, result.exit_signal  # doctest: +SKIP
    ('circuit_breaker', 'circuit_open')
    """
    options = checked(options)
    if not options.given:
        options = options._replace(given=options.differing)
    place = Path.cwd() if folder is None else Path(folder).absolute()
    agent, targets = _agent(options), targets_of(notify)
    if problem := missing_program(agent, place):
        raise LoopRefused(problem)
    runs = runs_root(place)
    if options.budget_micros is not None and not options.allow_unknown_price:
        priced = coverage(options, agent, place, runs)
        if not priced.known:
            raise LoopRefused(f"the budget cannot be enforced: {priced.why}")
    with (
        nullcontext(panel) if panel is not None else Panel() as circuits,
        task_lock(runs, task_name(place, options)) as lock,
    ):
        _admit(circuits, loop_name(place, options), options)
        record = new_run(runs)
        lock.describe(f"run {record.id}")
        setting = Setting(
            view=view or View(),
            interrupt=interrupt or Interrupt(),
            locks=(lock, folder_lock(record.path, f"run {record.id}")),
        )
        runner = Runner(options, agent, record, folder=place, panel=circuits, setting=setting)
        result = runner.run()
    outcomes = announce(targets, receipt_of(record.read()), ())
    return result._replace(notes=(*result.notes, *failures(outcomes)))


def _admit(panel: Panel, name: str, options: RunOptions) -> None:
    if options.shadow:
        return
    decision = loop_breaker(panel, name, policy_of(options)).check()
    if not decision.allow_continue:
        way = f"panel.order({name!r}, by=…, why=…, reset=True) closes it"
        raise LoopRefused(f"{name} is open: {decision.reason}; {way}")


def _agent(options: RunOptions) -> Agent:
    if options.agent_cmd is not None:
        return agent_of_command(options.agent_cmd)
    return agent_named(options.agent or "")
