"""The scenarios of `--live`: the real hook command, the real store, the real loop runner."""

from switchgear._analysis.selftest import live_hooks, live_runs, live_store
from switchgear._analysis.selftest.plan import SelftestScenario

LIVE: dict[str, SelftestScenario] = {
    scenario.name: scenario
    for scenario in (
        SelftestScenario(
            "live-hooks",
            "The hook command itself, by its standard input, in a throw-away project.",
            (live_hooks.attacked,),
        ),
        SelftestScenario(
            "live-store",
            "The configured store itself, under circuits of our own that are removed afterwards.",
            (live_store.attacked,),
        ),
        SelftestScenario(
            "live-runs",
            "`switchgear run` itself, with the demo agent in a throw-away repository.",
            (live_runs.attacked,),
        ),
    )
}
