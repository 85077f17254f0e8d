"""Secrets and control characters out of texts before they are stored, shown or sent anywhere.

Errors of providers quote keys, tokens and URLs with passwords. What matches here never reaches a
circuit, an event, a log or a terminal. Every pattern is linear: bounded repeats, no nesting.
"""

import re

LONGEST = 200
"""Characters kept of an error's text."""
_LOOKED_AT = 2000

_SECRETS = re.compile(
    r"""
      \b(?:sk|pk|rk|xox[abeprs]|gh[oprsu]|github_pat|glpat|hf|AKIA|ASIA|AIza|ya29)[-_A-Za-z0-9.]{12,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]{8,}                  # JSON web token
    | (?<=://)[^/\s:@]{1,80}:[^/\s@]{1,200}(?=@)                  # user:password in a URL
    | (?i:(?<=bearer\ )|(?<=basic\ ))[A-Za-z0-9._~+/=-]{8,}
    | (?i:(?<=key=)|(?<=key:\ )|(?<=token=)|(?<=token:\ )|(?<=secret=)|(?<=secret:\ )
         |(?<=password=)|(?<=password:\ )|(?<=api-key:\ )|(?<=authorization:\ ))
      (?!Bearer\b|Basic\b)["']?[^\s"'&,;]{4,}
    """,
    re.VERBOSE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]+")


def redact(text: str) -> str:
    r"""One line of at most `LONGEST` characters without secrets and without control characters.

    >>> redact("401 bad key sk-proj-abcdefghijklmnop\nsee https://u:pw@host/")
    '401 bad key [redacted] see https://[redacted]@host/'
    """
    line = text[:_LOOKED_AT]
    if not line.isprintable():
        line = _CONTROL.sub(" ", line)
    line = _SECRETS.sub("[redacted]", line).strip()
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
