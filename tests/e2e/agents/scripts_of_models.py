"""The responses of the scripted model, turn by turn, in each scenario.

A turn is a shell command to run or a text that ends the run. The turn is told by the number of
answers already in the request, so a client that retries gets the same answer again, and a new run
begins at the first turn. State between runs is in the working directory, as it is for a real model.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Turn(NamedTuple):
    """One answer of the model."""

    shell: str | None = None
    text: str = ""
    status: int = 200
    """Anything else is an error of the provider, given to every attempt."""
    retry_after_s: int | None = None
    input_tokens: int = 1_000
    output_tokens: int = 20


# An agent on a busy machine may lose the last words of a command that ends at once (Qwen Code does).
FAILING = "cat settings-that-do-not-exist.toml; sleep 0.5; false"
ADD_A_LINE = "echo one more line >> progress.txt"

SCENARIOS: Mapping[str, tuple[Turn, ...]] = MappingProxyType(
    {
        # One command, its outcome, a closing word.
        "short": (Turn(shell="echo hello"), Turn(text="Done.")),
        # One failing command in each run, and the run ends.
        "same-error": (Turn(shell=FAILING), Turn(text="The settings are missing.")),
        # A run that never ends by itself.
        "same-error-for-ever": (Turn(shell=FAILING),) * 500,
        # A line, then the same failing command three times, and it gives up.
        "gives-up": (
            Turn(shell=ADD_A_LINE),
            *(Turn(shell=FAILING),) * 3,
            Turn(text="The settings are missing. I give up."),
        ),
        # A line more in each turn, then the end.
        "steady-progress": (
            *(Turn(shell=f"echo line {number} >> progress.txt") for number in range(3)),
            Turn(text="All lines are written. DONE"),
        ),
        # Work that costs a few dollars by any price list.
        "expensive": (
            Turn(shell=ADD_A_LINE, input_tokens=60_000, output_tokens=80_000),
            Turn(text="One line is written.", input_tokens=60_000, output_tokens=80_000),
        ),
        "server-errors": (Turn(status=500),),
        "overloaded": (Turn(status=529),),
        "rate-limited": (Turn(status=429, retry_after_s=1),),
    }
)


def turn_of(scenario: str, answers: int) -> Turn:
    """The answer for a request that already has this number of answers."""
    turns = SCENARIOS[scenario]
    if turns[-1].status != 200:
        return turns[-1]
    return turns[answers] if answers < len(turns) else Turn(text="Done.")
