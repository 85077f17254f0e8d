"""Which programs only look at the files they are given.

Of every other program it is not known what it does to them, so a rule may take it that it changes
them (`given`). Data, and one question.
"""

from collections.abc import Sequence

READERS = frozenset(
    (
        *("cat", "tac", "head", "tail", "less", "more", "most", "nl", "od", "hexdump", "strings"),
        *("file", "stat", "ls", "dir", "exa", "eza", "tree", "du", "df", "wc", "uniq", "cut"),
        *("paste", "comm", "column", "fold", "fmt", "tr", "rev", "grep", "egrep", "fgrep"),
        *("zgrep", "rg", "ag", "ack", "diff", "sdiff", "colordiff", "delta", "cmp", "md5"),
        *("md5sum", "sha1sum", "sha256sum", "sha512sum", "shasum", "cksum", "b2sum", "base64"),
        *("basename", "dirname", "realpath", "readlink", "namei", "test", "[", "[[", "echo"),
        *("printf", "true", "false", "cd", "pushd", "popd", "pwd", "which", "type", "whereis"),
        *("jq", "bat", "batcat", "view", "source", ".", "yamllint", "shellcheck", "cloc"),
        *("pytest", "mypy", "pyright", "getfacl", "lsattr", "lsof", "gh", "glab", "switchgear"),
        *("sort", "find", "fd", "xxd", "ruff", "prettier", "vi", "vim", "nvim", "code", "zip"),
        *("return", "exit", "export", "local", "declare", "sleep", "date", "pgrep", "pidof"),
    )
)
_UNLESS: dict[str, tuple[str, ...]] = {
    "sort": ("-o", "--output"),
    "find": ("-fprint", "-fprintf", "-fls"),  # what it executes is looked at by itself
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "xxd": ("-r",),
    "tree": ("-o",),
    "ruff": ("format", "--fix"),
    "prettier": ("--write", "-w"),
    "zip": ("-m", "--move", "-d"),
}
"""Words with which they write after all."""
_ONLY_WITH: dict[str, tuple[str, ...]] = {
    "vi": ("-R",),
    "vim": ("-R",),
    "nvim": ("-R",),
    "code": ("--diff", "-d"),
}
"""Words without which they write."""
_GIT_READS = frozenset(
    (
        *("diff", "log", "show", "status", "add", "stage", "commit", "blame", "annotate", "grep"),
        *("ls-files", "ls-tree", "rev-parse", "rev-list", "check-ignore", "check-attr", "branch"),
        *("cat-file", "describe", "tag", "push", "fetch", "pull", "shortlog", "reflog", "archive"),
        *("whatchanged", "range-diff", "diff-tree", "diff-index", "notes", "remote", "merge-base"),
    )
)


def only_reads(program: str, rest: Sequence[str]) -> bool:
    """Whether a program with these words leaves the files that they name as they are.

    >>> only_reads("sort", ["a"]), only_reads("sort", ["-o", "a", "a"]), only_reads("elsewise", ["a"])
    (True, False, False)
    """
    if program == "git":
        return not rest or rest[0] in _GIT_READS
    if program not in READERS:
        return False
    if _any_of(_UNLESS.get(program, ()), rest):
        return False
    return program not in _ONLY_WITH or _any_of(_ONLY_WITH[program], rest)


def _any_of(options: Sequence[str], rest: Sequence[str]) -> bool:
    """Whether one of the options is among the words, also as `-ofile` or `--output=file`."""
    for option in options:
        is_short = len(option) == 2
        for word in rest:
            if word == option or word.startswith(f"{option}="):
                return True
            if is_short and word.startswith(option) and not word.startswith("--"):
                return True
    return False
