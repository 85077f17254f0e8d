"""`switchgear run`: run an agent in a loop until it is done, stuck or out of budget."""

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from switchgear._cli.options import defect, fail, json_option, store_options, token_option
from switchgear._cli.run_options import (
    StillOpen,
    admit,
    given_flags,
    limit_flags,
    settled,
    taken_out,
)
from switchgear._cli.views.text import clean, say, say_lines
from switchgear._text.formats import dollars, elapsed, plural

if TYPE_CHECKING:
    from switchgear._agents.base import Agent
    from switchgear._cli.context import Session
    from switchgear._core.errors import BudgetRefused
    from switchgear._core.policy import Policy
    from switchgear._fleet.delivery import Outcome
    from switchgear._fleet.targets import Target
    from switchgear._run.cost import CostEstimate, PriceCoverage
    from switchgear._run.loop import Runner
    from switchgear._run.options import RunOptions
    from switchgear._run.record import RunFolder
    from switchgear._run.result import RunResult
    from switchgear._run.run_lock import RunConflict, RunLock
    from switchgear._run.state import RunDependencies, RunState

# ruff: noqa: PLC0415  what a verb needs is imported when it is used


def dry_run(
    session: "Session",
    options: "RunOptions",
    agent: "Agent",
    folder: Path,
    *,
    policy: "Policy | None",
    targets: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what this run would do. Returns the exit code that it would be refused with, else 0."""
    from switchgear._agents.process import missing_program
    from switchgear._console.values import printed
    from switchgear._run.circuits import loop_name
    from switchgear._run.cost import coverage, estimate
    from switchgear._run.loop import NO_TESTS
    from switchgear._run.options import AUTO, describe_limits
    from switchgear._run.prompt import PromptFacts, check_plan, prompt_of, read_checklist
    from switchgear._run.record import runs_root
    from switchgear._run.validation import detect

    check_plan(folder, options.plan)
    runs = runs_root(Path.cwd())
    found = options.validate == AUTO
    circuit = loop_name(folder, options)
    options = options._replace(validate=detect(folder)) if found else options
    priced, past = coverage(options, agent, folder, runs), estimate(options, runs)
    plan = None if options.plan is None else read_checklist(folder / options.plan)
    shown: dict[str, Any] = {
        "task": options.task,
        "agent": options.agent_label,
        "command": agent.invocation("PROMPT", folder).argv,
        "folder": str(folder),
        "validation": options.validate,
        "validation_found": found and options.validate is not None,
        "notes": [NO_TESTS] if found and options.validate is None else [],
        "circuit": circuit,
        "limits": [f"policy of the configuration: {_kinds(policy)}"]
        if policy
        else describe_limits(options),
        "max_iterations": options.max_iterations,
        "timeout_s": options.timeout_s,
        "idle_timeout_s": options.idle_timeout_s,
        "budget_micros": options.budget_micros,
        "price_known": priced.known,
        "price": priced.why,
        "estimate": None if past is None else past._asdict(),
        "notify": list(targets),
        "prompt": prompt_of(options, PromptFacts(1, plan=plan)),
        "objections": [],
    }
    code = 0
    if problem := missing_program(agent, folder):
        shown["objections"].append(problem)
        code = 16
    if (still := _refusal(session, circuit)) and not options.shadow:
        shown["objections"].append(still)
        code = code or 10
    if options.budget_micros is not None and not (priced.known or options.allow_unknown_price):
        shown["objections"].append(f"--budget cannot be enforced: {priced.why}")
        code = code or 2
    if options.budget_micros == 0:
        shown["objections"].append("the budget is $0.00, so no iteration may start")
        code = code or 11
    shown["would_start"] = not shown["objections"]
    shown["exit_code"] = code
    if as_json:
        say(printed(shown))
    else:
        _print(shown, options, priced, past)
    return code


def _kinds(policy: "Policy") -> str:
    return ", ".join(detector.kind.replace("_", " ") for detector in policy.detectors)


def _refusal(session: "Session", circuit: str) -> str | None:
    """Why the loop's circuit does not let the run begin; `None`: it does, or there is none yet."""
    view = session.panel.view(circuit)
    if view is None or view.verdict.admitted:
        return None
    return f"{circuit} is open: {view.verdict.reason}"


def _print(
    shown: dict[str, Any],
    options: "RunOptions",
    priced: "PriceCoverage",
    past: "CostEstimate | None",
) -> None:
    from switchgear._cli.views.terminal import Screen

    screen = Screen()
    program = shutil.which(shown["command"][0]) or f"{shown['command'][0]}, not found"
    validation = shown["validation"] or "none"
    if shown["validation_found"]:
        validation += " (found in this folder)"
    money = "no budget"
    if options.budget_micros is not None:
        money = f"budget {dollars(options.budget_micros)}"
    rows = [
        ("task", " ".join(options.task.split())),
        ("agent", f"{options.agent_label} ({program})"),
        ("folder", shown["folder"]),
        ("validation", validation),
        ("circuit", shown["circuit"]),
        *(("stops at", line) for line in shown["limits"]),
        ("stops at", f"iterations: {options.max_iterations}"),
        ("stops at", _time(options)),
        ("stops at", money),
        ("price", priced.why),
        ("estimate", _estimate(past)),
        *(("notifies", target) for target in shown["notify"]),
        *(("note", note) for note in shown["notes"]),
    ]
    screen.line("dry run: nothing is executed and nothing is written")
    before = ""
    for name, text in rows:
        screen.line(f"{'' if name == before else name:11} {clean(text, 2000)}", indent=12)
        before = name
    screen.line()
    screen.line("prompt of the first iteration:")
    for line in shown["prompt"].rstrip().splitlines():
        say(f"    {clean(line, 20_000)}")
    screen.line()
    if shown["would_start"]:
        screen.line("the run would start")
    for objection in shown["objections"]:
        screen.line(f"the run would not start: {clean(objection, 2000)}", indent=4)
    unpriced = any("cannot be enforced" in each for each in shown["objections"])
    for option in priced.options if unpriced else ():
        screen.line(f"- {option}", indent=2)


def _time(options: "RunOptions") -> str:
    limit = "no time limit" if options.timeout_s is None else f"time: {elapsed(options.timeout_s)}"
    if options.idle_timeout_s is None:
        return limit
    return f"{limit}; an agent that prints nothing for {elapsed(options.idle_timeout_s)}"


def _estimate(past: "CostEstimate | None") -> str:
    if past is None:
        return "none: there are no past runs of this agent here"
    task = "this task" if past.same_task else "other tasks"
    span = f"{plural(past.iterations, 'iteration')} in {elapsed(past.seconds)}"
    about = f"{plural(past.runs, 'past run')} of {task}, median {span}"
    if past.micros is None or past.micros_per_iteration is None:
        return f"{about}; their cost is unknown"
    each = f"{dollars(past.micros_per_iteration)} each iteration"
    return f"{dollars(past.micros)}, {each} ({about})"


# ruff: noqa: PLC0415  what a verb needs is imported when it is used


class Start(NamedTuple):
    """What a run begins with, new or resumed."""

    options: "RunOptions"
    folder: Path
    record: "RunFolder | None" = None
    """`None`: a new one is made once the circuit lets the run begin."""
    state: "RunState | None" = None
    answer: str | None = None
    policy: "Policy | None" = None
    force: bool = False
    why: str | None = None
    how: str = "the same command with"
    circuit: str | None = None
    """The loop's circuit, of a run that continues; `None`: by folder, task, agent, validation."""
    targets: "tuple[Target, ...]" = ()
    """Those of `--notify`; the configured ones are notified, too."""
    note: str | None = None
    """A message for the start."""
    lock: "RunLock | None" = None
    """The lock of the run's folder, which a run that is resumed holds already."""


@click.command(short_help="Run an agent in a loop until it is done or stuck.")
@click.argument("task", required=False)
@click.option(
    "--agent",
    metavar="NAME",
    help="claude, codex, gemini, qwen, opencode, pi, goose, aider, mini or demo.",
)
@click.option(
    "--agent-cmd",
    metavar="'CMD {prompt}'",
    help="Any other agent, as a command; without {prompt} it reads standard input.",
)
@click.option(
    "--preset", metavar="P", help="A ready-made loop: feature, refactor, debug, docs and more."
)
@click.option("--completion-promise", metavar="TEXT", help="Done only when the agent prints TEXT.")
@click.option("--plan", metavar="FILE", help="A checklist; done when every box is ticked.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show prompt, validation, limits, price and estimate; run nothing.",
)
@limit_flags
@json_option
@token_option
@store_options
def run(
    task: str | None,
    *,
    as_json: bool,
    dry_run: bool,
    notify: tuple[str, ...],
    force_close: bool,
    why: str | None,
    **flags: Any,
) -> None:
    """Run an agent on TASK in a loop, until the task is done or the loop must stop.

    Progress is measured: files changed, tests passing, length of output. Each way to
    end has its exit code: completed 0, circuit_breaker 10, budget 11, timeout 12, max_iterations 13,
    rate_limit 14, blocked 15, agent_error 16, disk_full 17, unmeasurable 18, conflict 19,
    interrupted 130. The work is kept, and `switchgear resume` continues it. Options override
    the preset, and the preset overrides the configuration.
    """
    from switchgear._cli.context import open_session
    from switchgear._run.result import targets_of

    targets = targets_of(notify)
    with open_session(reading=dry_run) as session:
        if dry_run:
            code = _dry_run(session, task, given_flags(flags), targets, as_json=as_json)
        else:
            start = _start(session, task, given_flags(flags))
            start = start._replace(force=force_close, why=why, targets=targets)
            code = perform(session, start, as_json=as_json)
    raise SystemExit(code)


def _dry_run(
    session: "Session",
    task: str | None,
    flags: dict[str, Any],
    targets: "tuple[Target, ...]",
    *,
    as_json: bool,
) -> int:

    if flags.get("agent", "").partition(":")[0] == "demo":
        task, flags = _demo_task(task, flags)
    elif task is None:
        fail(_no_task(flags.get("validate")))
    options, _ = _options(session, task, flags)
    folder = Path.cwd()
    return dry_run(
        session,
        options,
        agent_of(options),
        folder,
        policy=configured(session, options, folder),
        targets=tuple(each.name for each in (*session.config.notifications, *targets)),
        as_json=as_json,
    )


def _start(session: "Session", task: str | None, flags: dict[str, Any]) -> Start:
    if flags.get("agent", "").partition(":")[0] == "demo":
        start = _demo(session, task, flags)
    elif task is None:
        fail(_no_task(flags.get("validate")))
    else:
        options, note = _options(session, task, flags)
        check_budget(options, Path.cwd())
        start = Start(options, Path.cwd(), note=note)
    policy = configured(session, start.options, start.folder)
    return start._replace(policy=policy)


def _no_task(validate: str | None) -> str:
    """The message when there is no task; an option may have taken it as its value."""
    if not validate or validate == "auto":
        return "TASK is missing: describe the task, or try --agent demo"
    return (
        f"TASK is missing: --validate took {validate!r} as its command; write the task before "
        f"--validate, or the command as --validate=CMD"
    )


def _options(
    session: "Session", task: str, flags: dict[str, Any]
) -> "tuple[RunOptions, str | None]":
    """The options of a run, and a message about its time limit."""
    from switchgear._cli.run_options import check_node
    from switchgear._run.options import run_options

    config: Any = session.config
    flags, wanted = taken_out(flags)
    defaults = {"stuck": config.interventions.in_runs}
    options = run_options(task, flags, presets=config.loop_presets, defaults=defaults)
    check_node(session.panel.budgets, options.budget_node)
    return settled(options, wanted, config.timeouts)


def check_budget(options: "RunOptions", folder: Path) -> None:
    """End the command if it is given a budget for a cost that cannot be known."""
    from switchgear._run.cost import coverage
    from switchgear._run.record import runs_root

    if options.budget_micros is None or options.allow_unknown_price:
        return
    priced = coverage(options, agent_of(options), folder, runs_root(Path.cwd()))
    if not priced.known:
        ways = "\n".join(f"- {option}" for option in priced.options)
        fail(f"--budget cannot be enforced: {priced.why}; nothing was started\n{ways}")


def _demo_task(task: str | None, flags: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The stand-in's task and flags, as far as they are not given."""
    from switchgear._agents.demo import TASK, VALIDATED, VALIDATION

    if flags["agent"].partition(":")[2] in VALIDATED:
        flags = {"validate": VALIDATION, **flags}
    return (TASK if task is None else task), flags


def _demo(session: "Session", task: str | None, flags: dict[str, Any]) -> Start:
    """The stand-in works in a throw-away repository, whatever folder this is."""
    from switchgear._agents.demo import make_repository
    from switchgear._run.record import new_run, runs_root

    task, flags = _demo_task(task, flags)
    options, note = _options(session, task, flags)
    agent_of(options)  # report an unknown scenario before anything is created
    record = new_run(runs_root(Path.cwd()))
    make_repository(record.path / "work")
    return Start(options, record.path / "work", record, note=note)


def configured(session: "Session", options: "RunOptions", folder: Path) -> "Policy | None":
    """The policy that the configuration has for this loop, unless flags or a preset set limits."""
    from switchgear._run.circuits import loop_name

    if options.preset is not None or options.given:
        return None
    return session.config.policy_for(loop_name(folder, options))


def perform(session: "Session", start: Start, *, as_json: bool) -> int:
    """Run it, show it, and return its exit code. One process at a time runs a task."""
    from switchgear._agents.process import missing_program
    from switchgear._run.circuits import loop_name, task_name
    from switchgear._run.prompt import check_plan
    from switchgear._run.record import runs_root
    from switchgear._run.run_lock import RunConflict, task_lock

    agent = agent_of(start.options)
    check_plan(start.folder, start.options.plan)
    name = start.circuit or loop_name(start.folder, start.options)
    if problem := missing_program(agent, start.folder):  # before anything is made or changed
        return _not_begun(start, name, "agent_error", problem, as_json=as_json)
    root = runs_root(Path.cwd()) if start.record is None else start.record.path.parent
    holds = None if start.record is None else f"run {start.record.id}"
    try:
        lock = task_lock(root, task_name(start.folder, start.options), holds)
    except RunConflict as conflict:
        return _not_begun(start, name, "conflict", conflict_text(conflict), as_json=as_json)
    with lock:
        return _perform(session, start, agent, name, lock, as_json=as_json)


def conflict_text(conflict: "RunConflict") -> str:
    """The process that runs it, and what can be done."""
    pid = conflict.holder.pid
    stop = "stop that process" if pid is None else f"kill {pid}"
    return "\n".join(
        (
            str(conflict),
            "- wait until it ends: switchgear watch",
            f"- stop it, its work is saved: {stop}",
            "- then repeat this command, or continue its run: switchgear resume last",
        )
    )


def _perform(
    session: "Session",
    start: Start,
    agent: "Agent",
    name: str,
    lock: "RunLock",
    *,
    as_json: bool,
) -> int:
    from switchgear._console.values import printed
    from switchgear._core.errors import BudgetRefused
    from switchgear._run.circuits import loop_breaker, policy_of

    options = start.options
    loop = loop_breaker(session.panel, name, start.policy or policy_of(options))
    said = None
    try:
        if not options.shadow or start.force:
            said = admit(loop, force=start.force, why=start.why, how=start.how)
        if start.force:
            _forget_ladder(session, name, start.why)
    except StillOpen as still:
        return _not_begun(start, name, "circuit_breaker", str(still), as_json=as_json)

    begun: list[Runner] = []
    try:
        result = _run(session, start, agent, said, lock, begun, as_json=as_json)
    except BudgetRefused as refused:
        text = f"{refused}\n{_ways_to_money(refused)}"
        return _not_begun(start, name, "budget", text, as_json=as_json)
    except Exception as error:
        if not any(runner.has_worked for runner in begun):
            raise
        return defect(error, f"resume {begun[0].context.record.id}")
    outcomes = _announced(session, start, result)
    if as_json:
        sent = [each._asdict() for each in outcomes]
        say(printed({**result.dump(), "notifications": sent}))
    return result.exit_code


def _announced(session: "Session", start: Start, result: "RunResult") -> "list[Outcome]":
    """Notify the targets that the run ended. Failed notifications are reported and change nothing else."""
    from switchgear._cli.run_options import who
    from switchgear._run.record import RunFolder, RunUnreadable
    from switchgear._run.result import failed_notices, notify_run_end, receipt_of

    targets = (*session.config.notifications, *start.targets)
    if not targets or not result.receipt_file:
        return []
    try:
        receipt = receipt_of(RunFolder(Path(result.receipt_file).parent).read())
    except RunUnreadable as problem:
        say(clean(f"switchgear: no notification was sent: {problem}", 1000), err=True)
        return []
    agent = session.config.crew.agents.get(start.options.agent_label.partition(":")[0])
    outcomes = notify_run_end(targets, receipt, [who() if agent is None else agent.owner])
    for failure in failed_notices(outcomes):
        say(clean(f"switchgear: {failure}", 1000), err=True)
    return outcomes


def _ways_to_money(refused: "BudgetRefused") -> str:
    node = shlex.quote(refused.node)
    shown = f"- switchgear budgets show {node}  # shows the reservations"
    more = f"- switchgear budgets set {node} DOLLARS  # give it more"
    return f"{shown}\n{more if refused.free_micros == 0 else '- a smaller --budget'}"


def _run(  # noqa: PLR0917
    session: "Session",
    start: Start,
    agent: "Agent",
    said: str | None,
    lock: "RunLock",
    begun: "list[Runner]",
    *,
    as_json: bool,
) -> "RunResult":
    from switchgear._cli.run_options import paid
    from switchgear._cli.views.run import chooser, run_view
    from switchgear._report.run_page import write_report
    from switchgear._run.interrupt import Interrupt
    from switchgear._run.state import RunDependencies

    with (
        Interrupt().installed() as interrupt,
        run_view(as_json=as_json, stopping=lambda: interrupt.asked) as view,
    ):
        dependencies = RunDependencies(
            view=view,
            interrupt=interrupt,
            policy=start.policy,
            circuit=start.circuit,
            sinks=tuple(session.config.sinks),
            report=write_report,
            answer=start.answer,
            interventions=session.config.interventions,
            second_opinion=session.config.second_opinion,
            stuck_policy=session.config.policy_for("session/run"),
            progress_policy=session.config.policy_for("progress/run"),
            choose=chooser(view, session.config.interventions.ask_s),
        )

        def made(held_micros: int | None) -> "Runner":
            for note in (said, start.note, _company(start)):
                if note is not None:
                    view.noted(note)
            made = dependencies._replace(held_micros=held_micros)
            begun.append(_runner(session, start, agent, made, lock))
            return begun[0]

        return paid(session.panel.budgets, start.options, start.state, made)


def _runner(
    session: "Session",
    start: Start,
    agent: "Agent",
    dependencies: "RunDependencies",
    lock: "RunLock",
) -> "Runner":
    from switchgear._run.loop import Runner
    from switchgear._run.record import new_run, runs_root
    from switchgear._run.run_lock import folder_lock

    record = start.record or new_run(runs_root(Path.cwd()))
    lock.describe(f"run {record.id}")
    try:
        locks = (lock, start.lock or folder_lock(record.path, f"run {record.id}"))
        return Runner(
            start.options,
            agent,
            record,
            folder=start.folder,
            panel=session.panel,
            state=start.state,
            dependencies=dependencies._replace(locks=locks),
        )
    except BaseException:
        record.discard()
        raise


def _forget_ladder(session: "Session", loop: str, why: str | None) -> None:
    """Closing a loop by force also resets its escalation."""
    from switchgear._cli.run_options import reason, who
    from switchgear._stuck.escalation import escalation_key

    key = escalation_key(loop)
    if session.panel.store.get(key) is not None:
        session.panel.order(key, by=who(), why=reason(why), reset=True)


def _company(start: Start) -> str | None:
    """Whether another run is at work in the same folder, in words."""
    from switchgear._run.record import is_alive, list_runs, runs_root

    here = str(start.folder)
    others = [
        each.id
        for each in list_runs(runs_root(Path.cwd()))
        if each.run is not None and each.run["folder"] == here and is_alive(each.run)
    ]
    if not others:
        return None
    return f"run {others[-1]} is active in this folder, too: its changes count for both"


def _say_not_begun(start: Start, circuit: str, text: str) -> None:
    """Notify the targets of `--notify` that a run did not start: the user may be away."""
    from switchgear._cli.run_options import who
    from switchgear._fleet.delivery import deliver, notice
    from switchgear._run.result import TIMEOUT_S, failed_notices

    if not start.targets:
        return
    why = text.splitlines()[0]
    task = " ".join(start.options.task.split())[:200]
    message = notice(
        f"run not started: {why} | task: {task}",
        severity="SEV3",
        kind="run_not_started",
        circuit=circuit,
        reason=why,
        owners=[who()],
        choices=text.splitlines()[1:],
    )
    for failure in failed_notices(deliver(start.targets, message, TIMEOUT_S)):
        say(clean(f"switchgear: {failure}", 1000), err=True)


def _not_begun(start: Start, circuit: str, exit_reason: str, text: str, *, as_json: bool) -> int:
    """Report that a run was not started, and why. Returns its exit code."""
    from switchgear._console.values import printed
    from switchgear._run.exit_reasons import EXIT_CODES, ExitReason

    if start.record is not None:
        start.record.discard()
    _say_not_begun(start, circuit, text)
    code = EXIT_CODES[ExitReason(exit_reason)].code
    if not as_json:
        say_lines(text)
        return code
    reason, *choices = text.splitlines()
    result = {
        "success": False,
        "exit_reason": exit_reason,
        "exit_code": code,
        "reason": reason,
        "choices": [choice.removeprefix("- ") for choice in choices],
        "iterations": 0,
        "circuit": circuit,
        "run": None,
    }
    say(printed(result))
    return code


def agent_of(options: "RunOptions") -> "Agent":
    """The agent that the options name. Raises ValueError for one that there is not."""
    from switchgear._agents.registry import agent_named, agent_of_command

    if options.agent_cmd is not None:
        return agent_of_command(options.agent_cmd)
    return agent_named(options.agent or "")
