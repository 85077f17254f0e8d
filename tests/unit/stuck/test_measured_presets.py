"""The trade-off of a preset is the measured one, wherever a preset is chosen."""

from pathlib import Path

import pytest

from switchgear._breaker.presets import DESCRIPTIONS, MEASURED

PAGE = (Path(__file__).parents[3] / "docs" / "stuck.md").read_text(encoding="utf-8")


def measured(preset: str) -> tuple[str, str, str]:
    """Harm, catchX and savedX in the table that the measurement wrote, in percent."""
    head = f"| **{preset}** | "
    row = next(line for line in PAGE.splitlines() if line.startswith(head))
    harm, _, caught, saved, _ = row.removeprefix(head).removesuffix(" |").split(" | ")
    seen, solved = map(int, harm.split("/"))
    return f"{100 * seen / solved:.1f} %", f"{float(caught):.0f} %", f"{float(saved):.0f} %"


@pytest.mark.parametrize("preset", MEASURED)
def test_the_description_of_a_preset_states_the_measured_figures(preset: str) -> None:
    harm, caught, saved = measured(preset)
    text = f"{harm} harmful stops, {caught} of exhausted runs caught, {saved} of their steps saved"
    assert MEASURED[preset] == text
    assert text in DESCRIPTIONS[preset]


@pytest.mark.parametrize("preset", MEASURED)
def test_the_table_of_presets_states_the_measured_figures(preset: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{preset}` |"))
    assert row.endswith(f"| {' | '.join(measured(preset))} |")
