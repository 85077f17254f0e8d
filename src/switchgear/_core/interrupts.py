"""Telling an interrupt of this process from an exception of code that is not ours.

Reading an exception runs its code: `__str__`, properties, `__getattr__`. Whatever that raises, also a
`BaseException`, must not replace the exception that the caller is waiting for. A real Ctrl-C must not
be swallowed.
"""


def is_interrupt(error: BaseException) -> bool:
    """Whether this is a Ctrl-C that arrived in our own code, and must be raised on.

    A KeyboardInterrupt whose innermost frame belongs to another module was raised there.
    """
    if not issubclass(type(error), KeyboardInterrupt):
        return False
    frame = None
    entry = TRACEBACK(error)
    while entry is not None:
        frame, entry = entry.tb_frame, entry.tb_next
    home = "" if frame is None else frame.f_globals.get("__name__")
    return isinstance(home, str) and home.partition(".")[0] == __name__.partition(".")[0]


# The slots of `BaseException` itself: a class may hide them behind properties that raise.
TRACEBACK = BaseException.__dict__["__traceback__"].__get__
CAUSE = BaseException.__dict__["__cause__"].__get__
CONTEXT = BaseException.__dict__["__context__"].__get__
SUPPRESSES_CONTEXT = BaseException.__dict__["__suppress_context__"].__get__
MEMBERS = BaseExceptionGroup.__dict__["exceptions"].__get__
NAME = type.__dict__["__name__"].__get__
"""The name of a class, whatever its metaclass makes of it."""
