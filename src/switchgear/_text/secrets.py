"""Texts that look like keys: what must not leave a machine or be committed.

Only forms that say what they are (a known beginning, then a long run of random characters), and no
placeholders: a rule that stops agents must not stop one that writes `sk-your-key-here`.
"""

_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_FORMS: tuple[tuple[str, int, frozenset[str], str], ...] = (
    ("sk-ant-", 40, _ALPHABET, "an Anthropic key"),
    ("sk-proj-", 40, _ALPHABET, "an OpenAI key"),
    ("sk-", 40, _ALPHABET, "a provider's key"),
    ("sk_live_", 20, _ALPHABET, "a Stripe key"),
    ("rk_live_", 20, _ALPHABET, "a Stripe key"),
    ("AKIA", 16, _UPPER, "an AWS key"),
    ("ASIA", 16, _UPPER, "an AWS key"),
    ("AIza", 35, _ALPHABET, "a Google key"),
    ("ghp_", 36, _ALPHABET, "a GitHub token"),
    ("gho_", 36, _ALPHABET, "a GitHub token"),
    ("ghs_", 36, _ALPHABET, "a GitHub token"),
    ("github_pat_", 50, _ALPHABET, "a GitHub token"),
    ("glpat-", 20, _ALPHABET, "a GitLab token"),
    ("xoxb-", 24, _ALPHABET, "a Slack token"),
    ("xoxp-", 24, _ALPHABET, "a Slack token"),
    ("hf_", 30, _ALPHABET, "a Hugging Face token"),
    ("npm_", 36, _ALPHABET, "an npm token"),
    ("pypi-", 80, _ALPHABET, "a PyPI token"),
)
"""Beginning, least length behind it, characters, what it is."""
_PEM = ("-----BEGIN ", "PRIVATE KEY-----")
_PLACEHOLDERS = (
    "example",
    "your",
    "xxxx",
    "dummy",
    "fake",
    "placeholder",
    "redacted",
    "1234567890",
)
_MOST = 10_000
"""Places looked at in one text for one form: more than any file of keys has."""
_LEAST_DIFFERENT = 9


def key_in(text: str) -> str | None:
    """What kind of key a text seems to contain, or `None`.

    >>> key_in("token ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2)
    'a GitHub token'
    >>> key_in("export OPENAI_API_KEY=sk-your-key-here") is None
    True
    """
    start = text.find(_PEM[0])
    if start >= 0 and 0 <= text.find(_PEM[1], start) - start < 60:
        return "a private key"
    for beginning, least, alphabet, kind in _FORMS:
        at = text.find(beginning)
        for _ in range(_MOST):
            if at < 0:
                break
            end = at + len(beginning)
            is_start = at == 0 or text[at - 1] not in _ALPHABET
            if is_start and _is_key(_run(text, end, alphabet), least):
                return kind
            at = text.find(beginning, end)
    return None


def _run(text: str, start: int, alphabet: frozenset[str]) -> str:
    end = start
    stop = min(len(text), start + 300)
    while end < stop and text[end] in alphabet:
        end += 1
    return text[start:end]


def _is_key(body: str, least: int) -> bool:
    if len(body) < least or len(set(body)) < _LEAST_DIFFERENT:
        return False
    small = body.lower()
    has_digit = any(sign.isdigit() for sign in body)
    return has_digit and not any(word in small for word in _PLACEHOLDERS)
