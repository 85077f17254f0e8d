"""A text as a short key, equal for equal texts: so that memories hold keys and not what was said.

A hook hashes a few texts per call, and importing `hashlib` for that would cost it milliseconds.
"""

_PRIME = 2**61 - 1


def digest(text: str) -> str:
    """The length of the text and its remainder by a large prime, in hexadecimal digits.

    Equal for equal texts, in every process and version. It is no secret and no signature: who
    tries can make two texts that share a key.

    >>> digest("git status") == digest("git status"), digest("git status") == digest("git stash")
    (True, False)
    """
    data = text.encode(errors="surrogatepass")
    return f"{len(data):x}.{int.from_bytes(data, 'little') % _PRIME:x}"
