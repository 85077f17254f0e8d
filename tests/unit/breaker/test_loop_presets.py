"""The presets of loops: complete, in range, and each limit has an effect."""

from pathlib import Path

import pytest

from switchgear import LoopBreaker, Signal
from switchgear._breaker.presets import LOOP_PRESETS, LoopPreset

LIMITS = {
    "feature": (30, 3, 5),
    "feature-minimal": (20, 3, 5),
    "tdd-red-green": (50, 5, 3),
    "spec-driven": (40, 3, 5),
    "refactor": (40, 2, 3),
    "debug": (20, 3, 5),
    "incident-response": (15, 2, 2),
    "code-archaeology": (30, 3, 5),
    "review": (10, 3, 5),
    "pr-review": (10, 3, 5),
    "adversarial-review": (15, 3, 5),
    "docs": (20, 3, 5),
    "documentation-first": (30, 3, 5),
    "api-design": (35, 3, 5),
    "migration-safety": (25, 1, 2),
    "performance-optimization": (30, 3, 5),
    "scientific-method": (40, 3, 5),
    "research": (25, 3, 5),
    "gap-analysis": (20, 3, 5),
}
every_preset = pytest.mark.parametrize("preset", LOOP_PRESETS.values(), ids=LOOP_PRESETS)


def test_the_presets_are_those_of_ralph_starter_with_their_limits() -> None:
    found = {
        name: (preset.max_iterations, preset.consecutive_failures, preset.same_error)
        for name, preset in LOOP_PRESETS.items()
    }
    assert found == LIMITS


@every_preset
def test_a_preset_is_named_described_and_addresses_the_agent(preset: LoopPreset) -> None:
    assert LOOP_PRESETS[preset.name] is preset
    assert preset.description.endswith(".")
    assert "\n" not in preset.description
    assert len(preset.prompt) > 60
    assert preset.prompt.endswith(".")


def test_all_presets_differ() -> None:
    assert len({preset.prompt for preset in LOOP_PRESETS.values()}) == len(LOOP_PRESETS)


@every_preset
def test_presets_that_only_read_are_neither_validated_nor_committed(preset: LoopPreset) -> None:
    reads = preset.name.endswith(("review", "research", "gap-analysis", "code-archaeology"))
    assert not (reads and (preset.validate or preset.commit))
    assert preset.validate or reads or preset.name == "docs"
    assert (".md" in preset.prompt) is reads, "what is not written down is no progress"


@every_preset
def test_a_loop_trips_exactly_at_the_limits_of_its_preset(preset: LoopPreset) -> None:
    def loop() -> LoopBreaker:
        return LoopBreaker(
            "loop/1",
            consecutive_failures=preset.consecutive_failures,
            same_error=preset.same_error,
        )

    failing, repeating = loop(), loop()
    letters = "abcdefgh"[: preset.consecutive_failures]
    tripped = [failing.record_failure(letter) for letter in letters]
    assert tripped == [False] * (preset.consecutive_failures - 1) + [True]
    if preset.consecutive_failures > 1:
        for _ in range(preset.same_error - 1):
            assert not repeating.record_failure("a")
            repeating.record(Signal(ok=True))
        assert repeating.record_failure("a")


@every_preset
def test_the_documentation_shows_a_preset_as_it_is(preset: LoopPreset) -> None:
    page = (Path(__file__).parents[3] / "docs" / "loops.md").read_text(encoding="utf-8")
    validate, commit = ("yes" if on else "no" for on in (preset.validate, preset.commit))
    limits = f"{preset.max_iterations} | {preset.consecutive_failures} | {preset.same_error}"
    row = f"| `{preset.name}` | {limits} | {validate} | {commit} | {preset.description} |"
    assert row in page
