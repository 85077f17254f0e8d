"""For the tests of people who use Switchgear: a clock that moves when it is told to."""


class FakeClock:
    """A clock for tests: `clock()` gives seconds, `clock.advance(60)` lets time pass.

    >>> clock = FakeClock()
    >>> clock.advance(60.0)
    >>> clock()
    60.0
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self.now_s = start_s

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError when told to run backwards: no breaker's clock does."""
        if not seconds >= 0:
            raise ValueError(f"seconds is {seconds!r}: it must be a number of at least 0")
        self.now_s += seconds
