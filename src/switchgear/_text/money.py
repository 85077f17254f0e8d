"""Money as a person reads it. It is counted in whole millionths of a dollar, never in floats."""


def dollars(micros: int) -> str:
    """`$1.23`; with all its digits when cents do not tell it.

    >>> dollars(1_230_000), dollars(42), dollars(-2_500_000)
    ('$1.23', '$0.000042', '-$2.50')
    """
    whole, rest = divmod(abs(micros), 1_000_000)
    digits = f"{rest:06}"
    return f"{'-' if micros < 0 else ''}${whole:,}.{digits[:2]}{digits[2:].rstrip('0')}"
