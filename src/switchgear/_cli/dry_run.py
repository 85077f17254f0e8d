"""`switchgear run --dry-run`: what a run would do. Executes nothing and writes nothing."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from switchgear._cli.views.text import clean, say
from switchgear._core.detector import plural
from switchgear._core.errors import elapsed
from switchgear._text.money import dollars

if TYPE_CHECKING:
    from switchgear._agents.base import Agent
    from switchgear._cli.context import Session
    from switchgear._core.policy import Policy
    from switchgear._run.budget import CostEstimate, PriceCoverage
    from switchgear._run.options import RunOptions

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
    from switchgear._cli.json_values import printed
    from switchgear._run.budget import coverage, estimate
    from switchgear._run.circuits import loop_name
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
    from switchgear._cli.views.screen import Screen

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
