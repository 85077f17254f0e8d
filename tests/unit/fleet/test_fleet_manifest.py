"""Manifests: the order of fallbacks, and cycles in their chains."""

from itertools import product

from switchgear import Signal
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import agent, crew, faults
from switchgear.testing import FakeClock


def test_models_and_then_agents_are_tried_in_the_order_of_the_manifest() -> None:
    people = crew(
        [
            agent(
                name="lead",
                owner="ana",
                provider="p1",
                model="m",
                fallback_models=["p2/m", "p3/m"],
                fallback_chain=["second", "third"],
            ),
            agent(name="second", owner="ben", provider="p4", model="m"),
            agent(name="third", owner="ben", provider="p5", model="m"),
        ]
    )
    with Fleet.open("memory:", people, clock=FakeClock(0.0)) as fleet:
        asked = []
        for provider in ("p1", "p2", "p3", "p4", "p5"):
            with fleet.route("lead") as route:
                asked.append(f"{route.worker} on {route.model}")
            fleet.panel.breaker(f"provider/{provider}").record(Signal(ok=False, retry_after_s=60.0))
    assert asked == [
        "lead on p1/m",
        "lead on p2/m",
        "lead on p3/m",
        "second on p4/m",
        "third on p5/m",
    ]


def test_a_cycle_is_found_where_an_agent_can_come_back_to_itself_and_nowhere_else() -> None:
    names = "abc"
    pairs = [(one, other) for one in names for other in names]
    for chosen in product([False, True], repeat=len(pairs)):
        edges = {pair for pair, on in zip(pairs, chosen, strict=True) if on}
        people = {
            name: agent(
                name=name,
                owner="x",
                provider="p",
                model="m",
                fallback_chain=[
                    other for one, other in pairs if one == name and (one, other) in edges
                ],
            )
            for name in names
        }
        reach = set(edges)
        for _ in names:
            reach |= {(a, d) for a, b in reach for c, d in edges if b == c}
        assert bool(
            list(faults({name: one.fallback_chain for name, one in people.items()}))
        ) == any((name, name) in reach for name in names), edges


def test_agents_that_all_fall_back_on_each_other_are_reported_once_each_at_most() -> None:
    names = [f"a{number}" for number in range(20)]
    chains = {name: [other for other in names if other != name] for name in names}
    circles = [why.partition(": ")[2].split(" → ")[1:] for _, why in faults(chains)]
    told = [name for circle in circles for name in circle]
    assert told
    assert len(set(told)) == len(told)


def test_all_cycles_without_a_common_agent_are_reported() -> None:
    chains = {"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": ["c"]}
    assert [name for name, _ in faults(chains)] == ["a", "c"]


def test_a_chain_of_thousands_is_traversed_once() -> None:
    people = {
        f"a{number}": agent(
            name=f"a{number}",
            owner="x",
            provider="p",
            model="m",
            fallback_chain=[f"a{(number + 1) % 5000}"],
        )
        for number in range(5000)
    }
    [(name, why)] = faults({name: one.fallback_chain for name, one in people.items()})
    assert name == "a0"
    assert why.endswith("a4999 → a0")
