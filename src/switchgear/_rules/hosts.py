"""The hosts that a command or a text would call: in URLs, in words of `curl`, `ssh`, `git`, and so on."""

from collections.abc import Iterator

from switchgear._rules.patterns import word_set
from switchgear._rules.shell.parser import ShellCommand
from switchgear._rules.shell.words import UNKNOWN

_CALLING = word_set("""
    curl wget http https xh nc ncat netcat telnet ssh scp sftp rsync ftp lftp aria2c socat openssl
    websocat ping dig nslookup host drill wscat grpcurl rclone sshpass curlie getent whois
    traceroute logger redis-cli psql mysql snmptrap mosquitto_pub mongosh kdig resolvectl
""")
"""Programs whose words may be hosts without a scheme."""
_CLOUDS: dict[str, str] = {
    **dict.fromkeys(("aws", "s3cmd", "s5cmd"), "amazonaws.com"),
    **dict.fromkeys(("gsutil", "gcloud"), "googleapis.com"),
    "az": "azure.com",
    "mc": "a cloud",
    **dict.fromkeys(("mail", "mailx", "sendmail", "mutt", "swaks"), "a mailbox"),
    **dict.fromkeys(("wormhole", "croc", "transfer", "pastebinit", "termbin"), "a receiver"),
    "gist": "gist.github.com",
}
"""Programs that send files to a fixed service."""
_UPLOADS = frozenset(("cp", "mv", "sync", "put", "upload", "rsync", "send", "share"))
_PROVIDERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ANTHROPIC", "CLAUDE"), ("anthropic.com", "claude.ai", "claude.com")),
    "OPENAI": ("openai.com", "azure.com"),
    "OPENROUTER": ("openrouter.ai",),
    "AZURE": ("azure.com", "windows.net", "microsoft.com", "azure.net"),
    **dict.fromkeys(("GEMINI", "GOOGLE", "GCP", "VERTEX"), ("googleapis.com", "google.com")),
    **dict.fromkeys(("GITHUB", "GH"), ("github.com", "githubusercontent.com", "ghcr.io")),
    **dict.fromkeys(("GITLAB", "CI"), ("gitlab.com",)),
    "AWS": ("amazonaws.com", "aws.amazon.com"),
    "STRIPE": ("stripe.com",),
    "SLACK": ("slack.com",),
    **dict.fromkeys(("HF", "HUGGINGFACE", "HUGGING"), ("huggingface.co", "hf.co")),
    **dict.fromkeys(("DOCKER", "DOCKERHUB"), ("docker.com", "docker.io")),
    **dict.fromkeys(("CLOUDFLARE", "CF"), ("cloudflare.com",)),
    "VERCEL": ("vercel.com",),
    "NETLIFY": ("netlify.com",),
    "HEROKU": ("heroku.com",),
    "SENTRY": ("sentry.io",),
    **dict.fromkeys(("DATADOG", "DD"), ("datadoghq.com", "datadoghq.eu")),
    "TWILIO": ("twilio.com",),
    "SENDGRID": ("sendgrid.com",),
    "MISTRAL": ("mistral.ai",),
    "COHERE": ("cohere.com", "cohere.ai"),
    "GROQ": ("groq.com",),
    "DEEPSEEK": ("deepseek.com",),
    **dict.fromkeys(("QWEN", "DASHSCOPE"), ("aliyuncs.com",)),
    "PERPLEXITY": ("perplexity.ai",),
    "REPLICATE": ("replicate.com",),
    "TOGETHER": ("together.xyz", "together.ai"),
    "XAI": ("x.ai",),
    "LINEAR": ("linear.app",),
    "NOTION": ("notion.com",),
    "FIGMA": ("figma.com",),
    "JIRA": ("atlassian.net", "atlassian.com"),
    "BITBUCKET": ("bitbucket.org",),
    "SUPABASE": ("supabase.co", "supabase.com"),
    **dict.fromkeys(("DIGITALOCEAN", "DO"), ("digitalocean.com",)),
    "FLY": ("fly.io",),
    "SSH": (),
    "SWITCHGEAR": (),
}
"""The domains of each provider, by the first word of the variables that hold its keys."""
UNKNOWN_HOST = "an unknown host"
"""Stands for a host that is only known at run time."""
_CALLING_VALUED = word_set("""
    -o -O -H -d -X -A -F -T -b -c -e -K -w -m -i -E -P -l -p --output --header --data --data-raw
    --request --data-binary --data-urlencode --form --user-agent --upload-file --cookie --cookie-jar
    --json --max-time --retry --write-out --output-document --post-data --post-file --body-data
    --directory-prefix
""")
"""Options of these programs whose value is not a host."""
_REDIRECTING = frozenset(("--resolve", "--connect-to"))
"""Options of `curl` that send a request to another address."""
_HOST_OPTIONS = ("--host=", "--hostname=", "--server=")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def hosts_in(text: str) -> Iterator[str]:
    at = text.find("://")
    while at >= 0:
        end = at + 3
        while end < len(text) and text[end] not in "/?#\\\"'`<>(){},; \t\r\n":
            end += 1
        host = host_of(text[at + 3 : end])
        if host:
            yield UNKNOWN_HOST if UNKNOWN in host else host
        at = text.find("://", end)


def host_of(authority: str) -> str:
    """The host of `user:password@Host.:8080`: `host`.

    >>> host_of("me@API.Example.com:8443"), host_of("[::1]:80")
    ('api.example.com', '::1')
    """
    host = authority.rpartition("@")[2].lower().replace("\u3002", ".").replace("\uff0e", ".")
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def may_call(program: str) -> bool:
    return program in _CALLING or program in _CLOUDS or program == "gh"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost`, or a loopback address in any notation.

    >>> [is_loopback(host) for host in ("127.0.0.1", "127.1", "localhost", "::1", "2130706433")]
    [True, True, True, True, True]
    >>> [is_loopback(host) for host in ("127.evil.example", "localhost.evil.example", "1270.0.0.1")]
    [False, False, False]
    """
    host = host.strip("[]").rstrip(".").partition("%")[0].lower()
    if host in {"localhost", "ip6-localhost", "0.0.0.0", "::"}:  # noqa: S104  nothing is bound
        return True
    if ":" in host:
        head, _, last = host.rpartition(":")
        if "." in last and head.strip("0:") in {"", "ffff"}:  # ::ffff:127.0.0.1
            return is_loopback(last)
        return not head.strip("0:") and last.lstrip("0") == "1"
    numbers = [_number(part) for part in host.split(".")]
    if not 1 <= len(numbers) <= 4 or any(number is None for number in numbers):
        return False
    *front, last_number = [number or 0 for number in numbers]
    bits = 8 * (4 - len(front))
    if any(number > 255 for number in front) or last_number >= 1 << bits:
        return False
    first = front[0] if front else last_number >> 24
    return first == 127


def is_own_key(variable: str, host: str) -> bool:
    """Whether the key in a variable may go to a host.

    It may go to this machine and to the provider that the variable is named after; a variable of no
    known provider may go anywhere.

    >>> is_own_key("GITHUB_TOKEN", "api.github.com"), is_own_key("GITHUB_TOKEN", "github.com.evil.example")
    (True, False)
    >>> is_own_key("TOKEN", "api.example.com")
    True
    """
    own = _PROVIDERS.get(variable.partition("_")[0])
    if own is None or is_loopback(host):
        return True
    return any(host == domain or host.endswith(f".{domain}") for domain in own)


def _number(part: str) -> int | None:
    """A part of an address: decimal, octal or hexadecimal, as `inet_aton` reads it."""
    base = 16 if part.startswith("0x") else 8 if part.startswith("0") and len(part) > 1 else 10
    digits = part[2:] if base == 16 else part
    if not digits or len(digits) > 16 or not digits.isascii() or not digits.isalnum():
        return None
    try:
        return int(digits, base)
    except ValueError:
        return None


def called_by(command: ShellCommand) -> Iterator[str]:
    """The hosts that a command calls, by its words and redirections."""
    program, *rest = command.words
    found = list(_hosts(program, rest))
    yield from found
    yield from _device_hosts(command)
    if found and all(map(is_loopback, found)):  # a proxy set in the same text gets the request
        for name, value in command.variables.items():
            if name.lower() in _PROXIES and value:
                yield host_of(value.rpartition("//")[2].partition("/")[0])


def _hosts(program: str, rest: list[str]) -> Iterator[str]:
    for word in rest:
        if "://" in word:
            yield from hosts_in(word)
    if program == "git" and rest:
        for word in rest[1:]:
            before, colon, _ = word.partition(":")
            if colon and "@" in before and "/" not in before:  # git@host:path
                yield host_of(before)
        return
    if program in _CLOUDS:
        if program not in {"aws", "gsutil", "gcloud", "az", "mc"} or _UPLOADS & set(rest):
            yield _CLOUDS[program]
        return
    if program == "gh" and rest[:1] and rest[0] not in {"auth", "config", "help"}:
        yield "github.com"
    if program in {"kubectl", "oc"} and "cp" in rest:
        yield "a cluster"
    if program in _CALLING:
        yield from _hosts_in_words(program, rest)


def _hosts_in_words(program: str, rest: list[str]) -> Iterator[str]:
    """The hosts in the words of a program that calls hosts; `UNKNOWN_HOST` if none can be known."""
    if program == "openssl" and "s_client" not in rest:
        return
    before, found = "", False
    for word in rest:
        if before in _REDIRECTING or word.startswith(_HOST_OPTIONS):
            # --resolve name:port:address, --connect-to name:port:host:port, --host=host
            parts = word.partition("=")[2] if word.startswith("-") else word
            addresses = parts.split(":")[2:3] if before in _REDIRECTING else [parts]
            yield from (host_of(address) for address in addresses if address)
        is_plain = "://" not in word and not word.startswith("-") and before not in _CALLING_VALUED
        if is_plain and not word.startswith("@"):
            authority = word.partition("/")[0]
            host = host_of(authority)
            named = "." in host or host == "localhost" or "@" in authority or ":" in authority
            named = (
                named or program in {"ssh", "nc", "ncat", "netcat", "telnet"} or _is_number(host)
            )
            if named and host.replace("-", "").replace(".", "").isalnum():
                found = True
                yield host
        found = found or "://" in word
        before = word
    if not found and (program == "lftp" or any(UNKNOWN in word for word in rest)):
        yield UNKNOWN_HOST


def _is_number(host: str) -> bool:
    return host[:1].isdigit() and _number(host) is not None and len(host) > 4


def _device_hosts(command: ShellCommand) -> Iterator[str]:
    """The hosts in redirections to `/dev/tcp/host/port`, which bash opens itself."""
    for _, target in command.redirects:
        parts = target.split("/")
        if parts[:2] == ["", "dev"] and parts[2:3] in (["tcp"], ["udp"]) and len(parts) > 3:
            yield host_of(parts[3])
