"""The notice that a run or a batch ended: to the configured targets and to those of `--notify`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from switchgear._fleet.notify import Outcome, deliver, notice, target_from_text
from switchgear._fleet.targets import Target
from switchgear._run.exit_reasons import ExitReason

TIMEOUT_S = 10.0
"""How long all notices of a run may take in all."""
SEVERITY: dict[str, str] = {
    ExitReason.COMPLETED: "INFO",
    ExitReason.INTERRUPTED: "INFO",
    ExitReason.CIRCUIT_BREAKER: "SEV2",
    ExitReason.AGENT_ERROR: "SEV2",
    ExitReason.DISK_FULL: "SEV2",
    ExitReason.UNMEASURABLE: "SEV2",
}
"""Of each end; SEV3 where it is not listed: somebody has to decide, and nothing is broken."""


def targets_of(texts: Iterable[str]) -> tuple[Target, ...]:
    """The targets that `--notify` names. Raises ValueError."""
    found = []
    for text in texts:
        try:
            found.append(target_from_text(text))
        except ValueError as problem:
            raise ValueError(f"--notify: {problem}") from None
    return tuple(dict.fromkeys(found))


def announce(
    targets: Sequence[Target], receipt: Mapping[str, Any], owners: Iterable[str]
) -> list[Outcome]:
    """Send the receipt of a run that ended. Never raises; each target's outcome is returned."""
    if not targets:
        return []
    reason = str(receipt["exit_reason"])
    task = str(receipt["what"]["task"])
    words = f"run {receipt['run']} ended, {reason}: {receipt['why']} | task: {task}"
    if receipt["continue"]:
        words += f" | continue: {receipt['continue']}"
    message = notice(
        words,
        severity=SEVERITY.get(reason, "SEV3"),
        kind="run_ended",
        circuit=str(receipt["what"]["circuit"]),
        reason=str(receipt["why"]),
        owners=owners,
        receipt=dict(receipt),
    )
    return deliver(targets, message, TIMEOUT_S)


_BATCH_SEVERITY = {
    "done": "INFO",
    "interrupted": "INFO",
    "aborted": "SEV2",
    "disk_full": "SEV2",
}
"""Of each end of a batch; SEV3 where it is not listed."""


def announce_batch(
    targets: Sequence[Target], result: Mapping[str, Any], words: str, owners: Iterable[str]
) -> list[Outcome]:
    """Send what a batch came to. Never raises; each target's outcome is returned."""
    if not targets:
        return []
    message = notice(
        words,
        severity=_BATCH_SEVERITY.get(str(result["end"]), "SEV3"),
        kind="batch_ended",
        circuit=f"batch/{result['batch']}",
        reason=str(result["reason"]),
        owners=owners,
        result=dict(result),
    )
    return deliver(targets, message, TIMEOUT_S)


def failures(outcomes: Iterable[Outcome]) -> list[str]:
    """A sentence for each notice that did not arrive."""
    return [
        f"notification to {each.target} failed: {each.why}" for each in outcomes if not each.sent
    ]
