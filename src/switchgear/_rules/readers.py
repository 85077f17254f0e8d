"""Which programs only read the files that their arguments name.

Every other program may change those files, which are then `given` to it.
"""

from collections.abc import Sequence

from switchgear._rules.options import is_short
from switchgear._rules.patterns import word_list, word_set

READERS = word_set("""
    cat tac head tail less more most nl od hexdump strings file stat ls dir vdir exa eza lsd tree du
    df wc uniq cut paste comm join column fold fmt tr rev expand grep egrep fgrep zgrep rg ag ack
    zcat bzcat xzcat zless diff sdiff diff3 colordiff delta cmp difft md5 look md5sum sha1sum
    sha256sum sha512sum shasum cksum sum b2sum sha224sum sha384sum b3sum xxhsum xxh64sum crc32 hd pr
    unexpand gron jless fx glow mdcat iconv shuf diffoscope numfmt zmore base64 base32 basename
    dirname realpath readlink namei test [ [[ echo printf true false : cd pushd popd pwd which type
    whereis whatis man help apropos info tldr jq gojq yq xq xmllint bat batcat view source . hexyl
    yamllint jsonlint shellcheck actionlint hadolint vale markdownlint cloc tokei scc pytest mypy
    pyright flake8 pylint bandit eslint tsc check-jsonschema taplo black isort stylelint codespell
    getfacl lsattr lsof gh glab switchgear sort find fd fdfind xxd ruff prettier vi vim nvim code
    zip gzip fzf pygmentize return exit export local declare readonly typeset unset set shopt alias
    unalias hash wait jobs fg bg disown ulimit umask sleep date pgrep pidof ps top id whoami groups
    hostname uname uptime env printenv seq expr bc getopts shift break continue read mapfile
    readarray let kill pkill killall pbcopy xclip xsel wl-copy cowsay notify-send say logger
    inotifywait fswatch mdls mdfind open xdg-open exiftool identify
""")
_WRITING_OPTIONS: dict[str, tuple[str, ...]] = {
    "sort": ("-o", "--output"),
    **dict.fromkeys(("fd", "fdfind"), ("-x", "-X", "--exec", "--exec-batch")),
    "xxd": ("-r",),
    "tree": ("-o", "--output"),
    "yq": ("-i", "--inplace", "-s", "--split-exp"),
    "jq": ("-i", "--in-place"),
    "ruff": ("format", "--fix", "--output-file", "-o"),
    "prettier": ("--write", "-w"),
    "zip": ("-m", "--move", "-d"),
    "gzip": ("-f", "-d", "-r", "--decompress"),
    "eslint": ("--fix", "-o", "--output-file"),
    "stylelint": ("--fix", "-o"),
    "markdownlint": ("--fix", "-f", "-o"),
    "taplo": ("format", "fmt"),
    "codespell": ("-w", "--write-changes"),
    "bandit": ("-o", "--output"),
    "xmllint": ("-o", "--output"),
    "less": ("-o", "-O", "--log-file"),
    "exiftool": ("-overwrite_original", "-o"),
    "rg": ("--pre",),
    "pygmentize": ("-o",),
    "mypy": ("--html-report", "--junit-xml"),
    "pytest": ("--basetemp", "--junitxml", "--junit-xml", "-o"),
    "tsc": ("--outDir", "--outFile", "--declarationDir"),
    "gh": ("-O", "--output", "-D", "--dir"),
    "inotifywait": ("-o", "--outfile"),
    **dict.fromkeys(("iconv", "shuf"), ("-o", "--output")),
    "gron": ("-u", "--ungron"),
    "fx": ("save", ".save"),
    "diffoscope": ("--text", "--html", "--html-dir", "--json", "--markdown"),
}
"""Options with which a reader writes."""
_READ_ONLY_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("vi", "vim", "nvim"), ("-R",)),
    "code": ("--diff", "-d"),
    "black": ("--check", "--diff"),
    "isort": ("--check", "--check-only", "--diff", "-c"),
    "gzip": ("-c", "--stdout", "-l", "-t", "-k"),
}
"""Programs that write unless one of these options is given."""
_EDITOR_COMMANDS = dict.fromkeys(
    ("vi", "vim", "nvim", "view"), word_list("-c + --cmd -S -s -es -e")
)
"""Options with which a read-only editor runs commands."""
_GIT_READS = word_set("""
    diff log show status add stage commit blame annotate grep ls-files ls-tree rev-parse rev-list
    check-ignore check-attr branch cat-file describe tag push fetch pull shortlog reflog archive
    whatchanged range-diff diff-tree diff-index notes remote merge-base diff-files var help version
    bisect merge rebase cherry-pick revert name-rev count-objects fsck show-ref for-each-ref
    ls-remote hash-object gc maintenance init clone blame format-patch cherry
""")
_GIT_OUTPUT_OPTIONS = ("--output", "-o")


_READING_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "openssl": word_set("""
        dgst md5 sha1 sha224 sha256 sha384 sha512 x509 verify asn1parse version crl
    """),
    **dict.fromkeys(
        ("hg", "svn", "jj", "sl", "fossil"),
        frozenset(("diff", "log", "status", "st", "show", "blame", "annotate", "cat", "grep")),
    ),
    "kubectl": frozenset(("diff", "explain")),
    "cue": frozenset(("vet",)),
    "ajv": frozenset(("validate", "test")),
}
"""The subcommands of programs that only read."""
_WRITING_PREFIXES = ("-o", "--output", "--config", "--tool", "--diff-cmd")
"""Prefixes of options with which these subcommands write or run something."""


def only_reads(program: str, rest: Sequence[str]) -> bool:
    """Whether a program with these arguments only reads the files that they name.

    >>> only_reads("sort", ["a"]), only_reads("sort", ["-o", "a", "a"]), only_reads("unknown", ["a"])
    (True, False, False)
    """
    if program == "git":
        if rest and rest[0] in {"diff", "log", "show", "archive", "format-patch"}:
            return not _any_of(_GIT_OUTPUT_OPTIONS, rest)
        return not rest or rest[0] in _GIT_READS
    if program in _READING_SUBCOMMANDS:
        is_reading = bool(rest) and rest[0] in _READING_SUBCOMMANDS[program]
        return is_reading and not any(word.startswith(_WRITING_PREFIXES) for word in rest)
    writing = (*_WRITING_OPTIONS.get(program, ()), *_EDITOR_COMMANDS.get(program, ()))
    if program not in READERS or _any_of(writing, rest):
        return False
    if program == "uniq" and sum(not word.startswith("-") for word in rest) > 1:
        return False  # the second word is written
    return program not in _READ_ONLY_OPTIONS or _any_of(_READ_ONLY_OPTIONS[program], rest)


def _any_of(options: Sequence[str], rest: Sequence[str]) -> bool:
    """Whether one of the options is given, also as `-ofile`, `-uo file` or `--output=file`."""
    for option in options:
        letter = option[1:] if len(option) == 2 and option[0] == "-" else ""
        for word in rest:
            if word == option or word.startswith(f"{option}="):
                return True
            name = word.partition("=")[0]
            if name[:2] == "--" and len(name) > 3 and option.startswith(name):  # --outp=file
                return True
            if option == "+" and word.startswith("+"):
                return True
            if letter and is_short(word) and letter in word[1:5]:
                return True
    return False
