"""Random shell texts from the grammar of a shell, right and wrong ones, for fuzzing."""

from random import Random

PROGRAMS = (
    *(
        "rm",
        "cat",
        "ls",
        "git",
        "cp",
        "mv",
        "tee",
        "sed",
        "find",
        "xargs",
        "curl",
        "python3",
        "node",
    ),
    *("bash", "sh", "eval", "env", "sudo", "tar", "docker", "ssh", "awk", "echo", "printf", "cd"),
    *("export", "alias", "trap", "read", "switchgear", "kill", "make", "npx", "ln", "chmod", "dd"),
    *(
        "f",
        "./x",
        "$X",
        "$(which a)",
        "'r'm",
        "r\\m",
        "time",
        "watch",
        "parallel",
        "function",
        "case",
    ),
)
WORDS = (
    *("-rf", "-c", "-e", "--", "-", "-o", "-S", "-C", "--output=x", "a", "*", ".*", "~", "/", ".."),
    *(".claude", ".claude/settings.json", "switchgear.yaml", ".switchgear/state.db", "src/app.py"),
    *("$X", "${X:-a}", "${X#*/}", "${!X}", "$1", '"$@"', "$'\\x41'", "{a,b}", "{1..3}", "[a-z]*"),
    *("'a b'", '"a $X b"', "`echo a`", "$(echo a)", "$((1+2))", "<(ls)", "@(a|b)", "x=1", "X+=a"),
    *("https://a.example", "@.env", "user@host:x", "é", "\\", "\\\n", "#", "reset", "push", "-f"),
    *(
        "2>&1",
        "> x",
        ">> .claude/x",
        "< a",
        "<<< a",
        "&> x",
        "<<E",
        "<<-'E'",
        ">|",
        "3<>x",
        ":::",
        "{}",
    ),
)
SIGNS = (
    *(
        ";",
        "&&",
        "||",
        "|",
        "&",
        "\n",
        "|&",
        ";;",
        "(",
        ")",
        "{ ",
        " }",
        "! ",
        "if ",
        "then ",
        "fi",
    ),
    *(
        "for x in a b; do ",
        "done",
        "while read x; do ",
        "case a in a) ",
        "esac",
        "f() { ",
        "}",
        "[[ ",
    ),
    *(
        "]]",
        "((",
        "))",
        "'",
        '"',
        "`",
        "$(",
        "${",
        "\nE\n",
        "# comment\n",
        "\t",
        "\\\n",
        "\0",
        "\r\n",
    ),
)


def command(random: Random) -> str:
    """One simple command."""
    words = random.choices(WORDS, k=random.randint(0, 5))
    return " ".join((random.choice(PROGRAMS), *words))


def text(random: Random, longest: int = 12) -> str:
    """A text of commands and operators; most are invalid in a shell."""
    parts: list[str] = []
    for _ in range(random.randint(1, longest)):
        parts.append(command(random) if random.random() < 0.6 else random.choice(WORDS))
        parts.append(random.choice(SIGNS) if random.random() < 0.6 else " ")
    joined = "".join(parts)
    if random.random() < 0.1:
        at = random.randrange(len(joined) + 1)
        joined = joined[:at] + chr(random.randrange(1, 0x3000)) + joined[at:]
    return joined


def long_text(random: Random, most: int) -> str:
    """A text of up to `most` characters, of few different parts, as padding is."""
    parts = [text(random, 3) for _ in range(random.randint(1, 4))]
    size = random.choice((most // 100, most // 10, most))
    repeated = "".join(parts) or "a"
    return (repeated * (size // len(repeated) + 1))[:size]
