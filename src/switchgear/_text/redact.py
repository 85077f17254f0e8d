"""Removes secrets and control characters from texts before they are stored, shown or sent.

Errors of providers quote keys, tokens and URLs with passwords. What matches here never reaches a
circuit, an event, a log or a terminal. Each pattern is linear (bounded repeats, no nesting), and
is tried only on texts that contain one of its triggers, so that ordinary errors cost little.

The patterns are compiled when they are first needed: compiling all of them would cost a hook process
1.5 ms, and few texts contain a secret.
"""

from typing import Any

LONGEST = 200
"""Characters kept of an error's text."""
LONGEST_TEXT = 4000
"""Characters of an agent's text that detectors read."""
_MAX_READ = 1000
"""Characters of a text that `redact` reads."""
_LONGEST_WORD = 30
"""Maximum number of characters that are dropped to cut between two words."""

_SECRETS: tuple[tuple[tuple[str, ...], str], ...] = (
    # A private key in PEM; without its end, where the text was cut.
    (
        ("private key",),
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----[\s\S]*?(?:-----END [A-Z ]{0,60}-----|\Z)",
    ),
    (
        # Keys with a known prefix: OpenAI, Anthropic, Stripe, Slack, GitHub, GitLab, npm, PyPI, Docker, AWS, Google.
        (
            *("sk-", "sk_", "pk_", "rk_", "hf_", "xox", "ghp_", "gho_", "ghs_", "ghu_", "ghr_"),
            *(
                "github_pat_",
                "glpat-",
                "npm_",
                "pypi-",
                "dckr_pat_",
                "akia",
                "asia",
                "aiza",
                "ya29.",
            ),
        ),
        (
            r"(?:\b|(?<=_)(?=[-\w.]{0,80}\d))(?:[spr]k[-_]|hf_|xox[abeprs]-|gh[oprsu]_|github_pat_|glpat-|npm_|pypi-AgE|dckr_pat_"
            r"|AKIA|ASIA|AIza|ya29\.)[-\w.]{12,}"
        ),
    ),
    (("eyj",), r"\beyJ[\w-]{8,}\.[\w.-]{8,}"),  # JSON web token
    (("hooks.slack.com/",), r"(?i)(hooks\.slack\.com/)[\w/-]{8,}"),
    # user:password@host, or a token alone; with SSH it is the name of a user
    (("://",), r"(?<=://)(?:[^/\s:@]{0,80}:[^/\s@]{1,200}|(?<!ssh://)[^/\s:@]{16,200})(?=@)"),
    # curl -u user:password; not docker -u 1000:1000
    (
        (" -u", "--user"),
        r"""(\s(?:-u|--user)[ =]?["']?[^\s:"'-][^\s:"']{0,80}:)(?!\d+\b)[^\s"'@/]{4,}""",
    ),
    (
        # A credential, not a word: it has a digit or a sign in it, or is longer than words are.
        ("bearer ", "basic "),
        r"(?i)(\b(?:bearer|basic) )(?:(?=[a-z]{0,200}[\d.~+/=_-])[\w.~+/=-]{8,}|[a-z]{20,})",
    ),
    (
        # A name and its value, also camelCase, inside JSON in JSON, or as an option of a command.
        (
            "key",
            "token",
            "secret",
            "passw",
            "passphrase",
            "credential",
            "authorization",
            "_pwd",
            "_pass=",
        ),
        r"""(?ix)
            ((?:(?<![a-z])(?:api)?key
               |(?:access|account|api|auth|encryption|master|private|secret|shared|signing|ssh)[_.-]?key(?:_base)?
               |token|secret|passw(?:or)?d|passphrase|credentials?|authorization|_pwd
               |_pass(?==(?!true\b|false\b)))
             (?:\\{0,3}["']?[ ]?[=:][ ]{0,3}\\{0,3}["']?
               |(?<=api-key)[ ]|(?<=-token)[ ]|(?<=-password)[ ]|(?<=-passphrase)[ ]))
            (?!bearer\b|basic\b|-)(?:[^\s"'&,;\\]|\\(?!["'])){4,}""",
    ),
)
_TRIGGERS = "\n".join(trigger for triggers, _ in _SECRETS for trigger in triggers)
"""One string, because in a forked process the first use of each string copies a page of memory."""
_CONTROL = r"\x1b\[[0-?]{0,30}[ -/]{0,5}[@-~]?|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufeff]+"


def redact(text: str, longest: int = LONGEST) -> str:
    r"""One line of at most `longest` characters without secrets and without control characters.

    >>> redact("401 bad key sk-proj-abcdefghijklmnop\nsee https://u:pw@host/")
    '401 bad key [redacted] see https://[redacted]@host/'
    """
    line = text[:_MAX_READ]
    if not line.isprintable():
        line = _replace(_CONTROL, " ", line)
    line = _without_secrets(line).strip()
    return shortened(line, longest, "…")


def shortened(text: str, longest: int, mark: str) -> str:
    """The text cut to at most `longest` characters including `mark`, between two words if possible.

    >>> shortened("the quick brown fox", 14, "…")
    'the quick…'
    """
    if len(text) <= longest:
        return text
    kept = text[: max(0, longest - len(mark))]
    if text[len(kept) : len(kept) + 1].isspace():
        return kept.rstrip() + mark
    words = kept.rfind(" ")
    return (kept[:words] if words >= len(kept) - _LONGEST_WORD and words > 0 else kept) + mark


def redact_lines(text: str, longest: int = LONGEST_TEXT) -> str:
    r"""The first `longest` characters without secrets, with line breaks kept. For detectors to read.

    >>> redact_lines("export TOKEN=abcd1234\ndone")
    'export TOKEN=[redacted]\ndone'
    """
    return _without_secrets(text[: longest + LONGEST])[:longest]


def redact_end(text: str, longest: int) -> str:
    r"""The last `longest` characters without secrets, also without the end of a secret that begins before them.

    >>> redact_end("TOKEN=abcdefgh12345678 done", 12)
    'dacted] done'
    """
    return _without_secrets(text[-(longest + LONGEST_TEXT) :])[-longest:]


def redacted_name(field: str, name: Any) -> str:
    """The name of an author or holder, redacted; it may be empty. Raises ValueError unless it is a string.

    >>> redacted_name("owner", "worker-3")
    'worker-3'
    """
    if not isinstance(name, str):
        raise ValueError(
            f"{field} is {name!r}: it must be a text that identifies it, such as 'worker-3'"
        )
    return redact(name)


def _without_secrets(text: str) -> str:
    folded = text.lower()
    if not any(map(folded.__contains__, _TRIGGERS.split("\n"))):
        return text
    for triggers, pattern in _SECRETS:
        for trigger in triggers:
            if trigger in folded:
                text = _replace(pattern, _mask_value, text)
                break
    return text


def _replace(pattern: str, replacement: Any, text: str) -> str:
    import re  # noqa: PLC0415  see above

    return re.sub(pattern, replacement, text)


def _mask_value(match: Any) -> str:
    """Keep the name of a secret and replace its value."""
    return (match[1] if match.re.groups else "") + "[redacted]"
