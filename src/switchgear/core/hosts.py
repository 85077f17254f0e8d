"""Whom a command or a text would call: hosts in URLs, in words of `curl`, `ssh`, `git`, and so on."""

from collections.abc import Iterator

from switchgear.core.shell import Command

_CALLS = frozenset(
    (
        *("curl", "wget", "http", "https", "xh", "nc", "ncat", "netcat", "telnet", "ssh", "scp"),
        *("sftp", "rsync", "ftp", "lftp", "aria2c", "socat", "openssl", "websocat"),
    )
)
"""Programs whose words may be hosts without a scheme before them."""
_CALL_VALUED = frozenset(
    (
        *("-o", "-O", "-H", "-d", "-X", "-A", "-F", "-T", "-b", "-c", "-e", "-K", "-w", "-m", "-i"),
        *("-E", "-P", "-l", "-p", "--output", "--header", "--data", "--data-raw", "--request"),
        *("--data-binary", "--data-urlencode", "--form", "--user-agent", "--upload-file"),
        *("--cookie", "--cookie-jar", "--json", "--max-time", "--retry", "--write-out"),
        *("--output-document", "--post-data", "--post-file", "--body-data", "--directory-prefix"),
    )
)


def hosts_in(text: str) -> Iterator[str]:
    """The hosts of the URLs in a text."""
    at = text.find("://")
    while at >= 0:
        end = at + 3
        while end < len(text) and text[end] not in "/?#\\\"'`<>(){},; \t\r\n":
            end += 1
        host = host_of(text[at + 3 : end])
        if host:
            yield host
        at = text.find("://", end)


def host_of(authority: str) -> str:
    """The host of `user:password@Host.:8080`: `host`.

    >>> host_of("me@API.Example.com:8443"), host_of("[::1]:80")
    ('api.example.com', '::1')
    """
    host = authority.rpartition("@")[2].lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def called_by(command: Command) -> Iterator[str]:
    """The hosts that a command would call, by its words and its redirections."""
    program, *rest = command.words
    yield from _hosts(program, rest)
    yield from _device_hosts(command)


def _hosts(program: str, rest: list[str]) -> Iterator[str]:
    for word in rest:
        yield from hosts_in(word)
    if program == "git" and rest:
        for word in rest[1:]:
            before, colon, _ = word.partition(":")
            if colon and "@" in before and "/" not in before:  # git@host:path
                yield host_of(before)
        return
    if program not in _CALLS:
        return
    before = ""
    for word in rest:
        if "://" not in word and not word.startswith("-") and before not in _CALL_VALUED:
            host = host_of(word.partition("/")[0])
            is_host = "." in host or host == "localhost" or "@" in word or program == "ssh"
            if is_host and host.replace("-", "").replace(".", "").isalnum():
                yield host
        before = word


def _device_hosts(command: Command) -> Iterator[str]:
    """`/dev/tcp/host/port`, which bash opens by itself."""
    for _, target in command.redirects:
        parts = target.split("/")
        if parts[:2] == ["", "dev"] and parts[2:3] in (["tcp"], ["udp"]) and len(parts) > 3:
            yield host_of(parts[3])
