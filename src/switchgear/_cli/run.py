"""`switchgear run`: run an agent in a loop until it is done, stuck or out of budget."""

import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from switchgear._agents.base import Agent
from switchgear._agents.demo import TASK, VALIDATED, VALIDATION, make_repository
from switchgear._agents.process import missing_program
from switchgear._cli.context import Session, open_session, say_json
from switchgear._cli.fleet import fleet_of
from switchgear._cli.options import (
    fail,
    json_option,
    report_defect,
    required_reason,
    store_options,
    token_option,
)
from switchgear._cli.run_options import (
    FORCED,
    StillOpen,
    admit,
    check_node,
    given_flags,
    limit_flags,
    run_with_reservation,
    split_timeout,
    with_timeout,
)
from switchgear._cli.views.run import LiveView, run_view
from switchgear._cli.views.terminal import Screen, chooser
from switchgear._cli.views.text import clean, say, say_lines, warn
from switchgear._core.errors import BudgetRefused
from switchgear._core.policy import Policy
from switchgear._fleet.delivery import Outcome, deliver, notice
from switchgear._fleet.targets import Target
from switchgear._report.run_page import write_report
from switchgear._run.circuits import loop_breaker, loop_name, policy_of, task_name
from switchgear._run.cost import CostEstimate, PriceCoverage, coverage, estimate
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason
from switchgear._run.interrupt import Interrupt
from switchgear._run.loop import NO_TESTS, Runner, agent_of
from switchgear._run.options import AUTO, RunOptions, describe_limits, run_options
from switchgear._run.prompt import check_plan, prompt_of, read_plan
from switchgear._run.record import RunFolder, RunUnreadable, is_alive, list_runs, new_run, runs_root
from switchgear._run.result import (
    TIMEOUT_S,
    RunResult,
    failed_notices,
    notify_configured,
    notify_run_end,
    receipt_of,
    targets_of,
)
from switchgear._run.run_lock import RunConflict, RunLock, folder_lock, task_lock
from switchgear._run.state import RunDependencies, RunState
from switchgear._run.validation import detect
from switchgear._stuck.escalation import escalation_key
from switchgear._system.login import login_name
from switchgear._text.formats import dollars, elapsed, plural


def show_dry_run(
    session: Session,
    task: str | None,
    flags: dict[str, Any],
    targets: tuple[Target, ...],
    *,
    as_json: bool,
) -> int:
    """Show what this run would do. Returns 0, or the exit code with which it would be refused."""
    options, _ = _options(session, *_named_task(task, flags))
    folder, agent = Path.cwd(), agent_of(options)
    policy = configured_policy(session, options, folder)
    check_plan(folder, options.plan)
    runs = runs_root(folder)
    detects = options.validate == AUTO
    circuit = loop_name(folder, options)
    options = options._replace(validate=detect(folder)) if detects else options
    priced, past = coverage(options, agent, folder, runs), estimate(options, runs)
    plan = read_plan(folder, options.plan)
    shown: dict[str, Any] = {
        "task": options.task,
        "agent": options.agent_label,
        "command": agent.invocation("PROMPT").argv,
        "folder": str(folder),
        "validation": options.validate,
        "validation_found": detects and options.validate is not None,
        "notes": [NO_TESTS] if detects and options.validate is None else [],
        "circuit": circuit,
        "limits": describe_limits(options),
        "max_iterations": options.max_iterations,
        "timeout_s": options.timeout_s,
        "idle_timeout_s": options.idle_timeout_s,
        "budget_micros": options.budget_micros,
        "price_known": priced.known,
        "price": priced.why,
        "estimate": None if past is None else past._asdict(),
        "notify": [each.name for each in (*session.config.notifications, *targets)],
        "prompt": prompt_of(options, RunState(), plan=plan),
    }
    if policy is not None:
        kinds = ", ".join(detector.kind.replace("_", " ") for detector in policy.detectors)
        shown["limits"] = [f"policy of the configuration: {kinds}"]
    objections: list[tuple[int, str]] = []
    if problem := missing_program(agent, folder):
        objections.append((16, problem))
    view = session.panel.view(circuit)
    if view is not None and not view.verdict.admitted and not options.shadow:
        objections.append((10, f"{circuit} is open: {view.verdict.reason}"))
    if options.budget_micros is not None and not (priced.known or options.allow_unknown_price):
        objections.append((2, f"--budget cannot be enforced: {priced.why}"))
    if options.budget_micros == 0:
        objections.append((11, "the budget is $0.00, so no iteration may start"))
    code = objections[0][0] if objections else 0
    shown["objections"] = [text for _, text in objections]
    shown["would_start"] = not objections
    shown["exit_code"] = code
    if as_json:
        say_json(shown)
    else:
        _print_dry_run(shown, options, priced, past)
    return code


def _print_dry_run(
    shown: dict[str, Any], options: RunOptions, priced: PriceCoverage, past: CostEstimate | None
) -> None:
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
        ("stops at", _time_limit(options)),
        ("stops at", money),
        ("price", priced.why),
        ("estimate", _estimate_text(past)),
        *(("notifies", target) for target in shown["notify"]),
        *(("note", note) for note in shown["notes"]),
    ]
    screen.line("dry run: nothing is executed and nothing is written")
    previous = ""
    for name, text in rows:
        screen.line(f"{'' if name == previous else name:11} {clean(text, 2000)}", indent=12)
        previous = name
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


def _time_limit(options: RunOptions) -> str:
    limit = "no time limit" if options.timeout_s is None else f"time: {elapsed(options.timeout_s)}"
    if options.idle_timeout_s is None:
        return limit
    return f"{limit}; an agent that prints nothing for {elapsed(options.idle_timeout_s)}"


def _estimate_text(past: CostEstimate | None) -> str:
    if past is None:
        return "none: there are no past runs of this agent here"
    task = "this task" if past.same_task else "other tasks"
    span = f"{plural(past.iterations, 'iteration')} in {elapsed(past.seconds)}"
    about = f"{plural(past.runs, 'past run')} of {task}, median {span}"
    if past.micros is None or past.micros_per_iteration is None:
        return f"{about}; their cost is unknown"
    each = f"{dollars(past.micros_per_iteration)} each iteration"
    return f"{dollars(past.micros)}, {each} ({about})"


class Start(NamedTuple):
    options: RunOptions
    folder: Path
    record: RunFolder | None = None
    """`None`: a new run, whose folder is created once the circuit admits it."""
    state: RunState | None = None
    answer: str | None = None
    policy: Policy | None = None
    force: bool = False
    why: str | None = None
    command: str = "the same command with"
    """What the user types to try again, up to the options."""
    circuit: str | None = None
    """The circuit of a resumed run; `None`: named after folder, task, agent and validation."""
    targets: tuple[Target, ...] = ()
    """The targets of `--notify`; the configured ones are notified, too."""
    note: str | None = None
    """Shown when the run starts."""
    lock: RunLock | None = None
    """The lock of the folder of a resumed run, which is locked before it is read."""


@click.command()
@click.argument("task", required=False)
@click.option(
    "--agent",
    metavar="NAME",
    help="Agent to run: claude, codex, gemini, qwen, opencode, pi, goose, aider, mini or demo.",
)
@click.option(
    "--agent-cmd",
    metavar="'CMD {prompt}'",
    help="Command to run instead of --agent. Without {prompt}, it reads the prompt from standard input.",
)
@click.option(
    "--preset",
    metavar="P",
    help="Use the limits and instructions of a preset: feature, refactor, debug, docs and more.",
)
@click.option(
    "--completion-promise",
    metavar="TEXT",
    help="Complete the task only when the agent prints TEXT.",
)
@click.option(
    "--plan",
    metavar="FILE",
    help="Complete the task when every box of the checklist FILE is ticked.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show prompt, validation, limits, price and cost estimate; run nothing.",
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

    Progress is measured: files changed, tests passing, length of output. Exit codes: completed 0,
    circuit_breaker 10, budget 11, timeout 12, max_iterations 13, rate_limit 14, blocked 15,
    agent_error 16, disk_full 17, unmeasurable 18, conflict 19, interrupted 130. The work is kept;
    `switchgear resume` continues the run. Options override the preset, and the preset overrides the
    configuration.
    """
    targets = targets_of(notify)
    with open_session(reading=dry_run) as session:
        if dry_run:
            code = show_dry_run(session, task, given_flags(flags), targets, as_json=as_json)
        else:
            start = _start(session, task, given_flags(flags))
            start = start._replace(force=force_close, why=why, targets=targets)
            code = perform(session, start, as_json=as_json)
    raise SystemExit(code)


def _start(session: Session, task: str | None, flags: dict[str, Any]) -> Start:
    options, note = _options(session, *_named_task(task, flags))
    if _is_demo(flags):  # works in a throw-away repository, in every folder
        agent_of(options)  # report an unknown scenario before anything is created
        record = new_run(runs_root(Path.cwd()))
        make_repository(record.path / "work")
        start = Start(options, record.path / "work", record, note=note)
    else:
        check_budget(options, Path.cwd())
        start = Start(options, Path.cwd(), note=note)
    return start._replace(policy=configured_policy(session, start.options, start.folder))


def _is_demo(flags: dict[str, Any]) -> bool:
    return str(flags.get("agent", "")).partition(":")[0] == "demo"


def _named_task(task: str | None, flags: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The task and the flags; the demo agent has its own task and validation."""
    if _is_demo(flags):
        if flags["agent"].partition(":")[2] in VALIDATED:
            flags = {"validate": VALIDATION, **flags}
        return TASK if task is None else task, flags
    if task is None:
        validate = flags.get("validate")
        if not validate or validate == AUTO:
            fail("TASK is missing: describe the task, or try --agent demo")
        fail(
            f"TASK is missing: --validate took {validate!r} as its command; write the task before "
            f"--validate, or the command as --validate=CMD"
        )
    return task, flags


def _options(session: Session, task: str, flags: dict[str, Any]) -> tuple[RunOptions, str | None]:
    config: Any = session.config
    flags, timeout = split_timeout(flags)
    defaults = {"stuck": config.interventions.in_runs}
    options = run_options(task, flags, presets=config.loop_presets, defaults=defaults)
    check_node(session.panel.budgets, options.budget_node)
    return with_timeout(options, timeout, config.timeouts)


def check_budget(options: RunOptions, folder: Path) -> None:
    """End the command if there is a budget and the cost cannot be known."""
    if options.budget_micros is None or options.allow_unknown_price:
        return
    priced = coverage(options, agent_of(options), folder, runs_root(Path.cwd()))
    if not priced.known:
        ways = "\n".join(f"- {option}" for option in priced.options)
        fail(f"--budget cannot be enforced: {priced.why}; nothing was started\n{ways}")


def configured_policy(session: Session, options: RunOptions, folder: Path) -> Policy | None:
    """The configuration's policy for this loop; `None`: it has none, or flags or a preset set limits."""
    if options.preset is not None or options.given:
        return None
    return session.config.policy_for(loop_name(folder, options))


def perform(session: Session, start: Start, *, as_json: bool) -> int:
    """Run the task and show the run. Returns its exit code. One process at a time runs a task."""
    agent = agent_of(start.options)
    check_plan(start.folder, start.options.plan)
    name = start.circuit or loop_name(start.folder, start.options)
    refuse = partial(_report_not_started, session, start, name, as_json=as_json)
    if problem := missing_program(agent, start.folder):  # before anything is created or changed
        return refuse("agent_error", problem)
    root = runs_root(Path.cwd()) if start.record is None else start.record.path.parent
    owner = None if start.record is None else f"run {start.record.id}"
    runners: list[Runner] = []
    try:
        with task_lock(root, task_name(start.folder, start.options), owner) as lock:
            remark = _admit(session, start, name)
            result = _run_loop(session, start, agent, remark, lock, runners, as_json=as_json)
    except RunConflict as conflict:
        return refuse("conflict", conflict_text(conflict))
    except StillOpen as still:
        return refuse("circuit_breaker", str(still))
    except BudgetRefused as refused:
        node = shlex.quote(refused.node)
        raise_limit = f"switchgear budgets set {node} DOLLARS  # raises its limit"
        way = "a smaller --budget" if refused.free_micros else raise_limit
        shown = f"switchgear budgets show {node}  # shows the reservations"
        return refuse("budget", f"{refused}\n- {shown}\n- {way}")
    except Exception as error:
        if not any(runner.has_worked for runner in runners):
            raise
        return report_defect(error, f"resume {runners[0].context.record.id}")
    outcomes = [each._asdict() for each in _notify_end(session, start, result)]
    if as_json:
        say_json({**result.dump(), "notifications": outcomes})
    return result.exit_code


def conflict_text(conflict: RunConflict) -> str:
    """Which process has the lock, and what the user can do."""
    pid = conflict.holder.pid
    stop = "stop that process" if pid is None else f"kill {pid}"
    return (
        f"{conflict}\n"
        "- wait until it ends: switchgear watch\n"
        f"- stop it, its work is saved: {stop}\n"
        "- then repeat this command, or continue its run: switchgear resume last"
    )


def _admit(session: Session, start: Start, name: str) -> str | None:
    """Check that the circuit admits the run, or close it by force. Returns a remark, if any."""
    if start.options.shadow and not start.force:
        return None
    loop = loop_breaker(session.panel, name, start.policy or policy_of(start.options))
    remark = admit(loop, force=start.force, why=start.why, command=start.command)
    key = escalation_key(name)
    if start.force and session.panel.store.get(key) is not None:
        why = required_reason(start.why, FORCED)
        session.panel.order(key, by=login_name(), why=why, reset=True)
    return remark


def _notify_end(session: Session, start: Start, result: RunResult) -> list[Outcome]:
    """Notify the targets that the run ended. Failed notifications are reported and change nothing else."""
    configured = session.config.notifications
    names = {target.name for target in configured}
    others = [target for target in start.targets if target.name not in names]
    if not (configured or others) or not result.receipt_file:
        return []
    try:
        receipt = receipt_of(RunFolder(Path(result.receipt_file).parent).read())
    except RunUnreadable as problem:
        warn(f"no notification was sent: {problem}")
        return []
    owner = session.owner_of(start.options.agent_label)
    outcomes = [
        *notify_configured(fleet_of(session), configured, receipt, owner),
        *notify_run_end(others, receipt, owner),
    ]
    for failure in failed_notices(outcomes):
        warn(failure)
    return outcomes


def _run_loop(  # noqa: PLR0917
    session: Session,
    start: Start,
    agent: Agent,
    remark: str | None,
    lock: RunLock,
    runners: list[Runner],
    *,
    as_json: bool,
) -> RunResult:
    """Run the loop. The runner is added to `runners`, so that the caller knows whether it has worked."""
    with (
        Interrupt().installed() as interrupt,
        run_view(as_json=as_json, stopping=lambda: interrupt.asked) as view,
    ):
        plan = session.config.interventions
        dependencies = RunDependencies(
            view=view,
            interrupt=interrupt,
            policy=start.policy,
            circuit=start.circuit,
            sinks=tuple(session.config.sinks),
            report=write_report,
            answer=start.answer,
            interventions=plan,
            second_opinion=session.config.second_opinion,
            stuck_policy=session.config.policy_for("session/run"),
            progress_policy=session.config.policy_for("progress/run"),
            choose=chooser(view.paused, plan.ask_s) if isinstance(view, LiveView) else None,
            owner=session.owner_of(start.options.agent_label),
        )

        def make_runner(held_micros: int | None) -> Runner:
            for note in (remark, start.note, _other_run(start)):
                if note is not None:
                    view.noted(note)
            needed = dependencies._replace(held_micros=held_micros)
            runners.append(_make_runner(session, start, agent, needed, lock))
            return runners[0]

        return run_with_reservation(session.panel.budgets, start.options, start.state, make_runner)


def _make_runner(
    session: Session, start: Start, agent: Agent, dependencies: RunDependencies, lock: RunLock
) -> Runner:
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


def _other_run(start: Start) -> str | None:
    """A note about another active run in the same folder, if there is one."""
    here = str(start.folder)
    others = [
        each.id
        for each in list_runs(runs_root(Path.cwd()))
        if each.run is not None and each.run["folder"] == here and is_alive(each.run)
    ]
    if not others:
        return None
    return f"run {others[-1]} is also active in this folder: its changes count for both runs"


def _report_not_started(
    session: Session, start: Start, circuit: str, exit_reason: str, text: str, *, as_json: bool
) -> int:
    """Report that a run was not started, and why. Returns its exit code.

    Also notifies the targets of `--notify`: the user may be away.
    """
    if start.record is not None:
        start.record.discard()
    reason, *choices = text.splitlines()
    if start.targets:
        task = " ".join(start.options.task.split())[:200]
        message = notice(
            f"run not started: {reason} | task: {task}",
            severity="SEV3",
            kind="run_not_started",
            circuit=circuit,
            reason=reason,
            owners=[session.owner_of(start.options.agent_label)],
            choices=choices,
        )
        for failure in failed_notices(deliver(start.targets, message, TIMEOUT_S)):
            warn(failure)
    code = EXIT_CODES[ExitReason(exit_reason)].code
    if not as_json:
        say_lines(text)
        return code
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
    say_json(result)
    return code
