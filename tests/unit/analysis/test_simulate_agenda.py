"""The agenda of a simulation: by time, and in the order of insertion for equal times."""

from random import Random

from switchgear._analysis.simulate.engine import Agenda


def test_entries_are_returned_by_time_and_then_by_order() -> None:
    chance, agenda = Random(1), Agenda()
    expected: list[tuple[float, int]] = []
    taken: list[tuple[float, int]] = []
    now_s, number = 0.0, 0
    for _ in range(3000):
        if chance.random() < 0.6:
            number += 1
            at_s = now_s + chance.choice((0.0, 0.25, 0.5, 3.0, 700.0 * chance.random()))
            agenda.put(at_s, print, number)
            expected.append((at_s, number))
        elif (entry := agenda.next()) is not None:
            now_s, work, given = entry
            assert (now_s, given) == min(expected)
            assert work is print
            expected.remove((now_s, given))
            taken.append((now_s, given))
    while (entry := agenda.next()) is not None:
        taken.append((entry[0], entry[2]))
    assert len(taken) == number
    assert [at_s for at_s, _ in taken] == sorted(at_s for at_s, _ in taken)
    assert Agenda().next() is None
