"""An error is stored as one short line without secrets and control characters."""

import pytest

from switchgear import AgentStep, CircuitBreaker, Event, Permit, Rejected, Signal
from switchgear._core.types import Record
from switchgear._core.wire import dump_message, load_message
from switchgear._text.redact import redact, redact_end, redact_lines
from switchgear.testing import FakeClock

BEGIN = "-----BEGIN RSA PRIVATE KEY-----"


def last_error_of(error: Exception) -> str:
    """The error in the refusal after this failure; its text can be printed and encoded."""
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())

    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        breaker.call(fails)
    with pytest.raises(Rejected) as refused:
        breaker.call(int)
    assert refused.value.last_error is not None
    assert refused.value.last_error in str(refused.value)
    return refused.value.last_error


def test_the_last_error_names_the_type_and_the_message() -> None:
    assert last_error_of(ConnectionError("refused by host")) == "ConnectionError: refused by host"


def test_an_error_without_a_message_is_named_by_its_type() -> None:
    assert last_error_of(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Incorrect API key provided: sk-proj-abcDEF123456789_xyz.", "abcDEF123456789"),
        ("invalid x-api-key sk-ant-api03-AAAAbbbbCCCCdddd", "AAAAbbbbCCCCdddd"),
        ("bad token ghp_0123456789abcdefABCDEF", "0123456789abcdef"),
        ("slack said no to xoxb-123456789012-abcdefgh", "123456789012"),
        ("AccessDenied for AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("authorization: bearer abcdef0123456789", "abcdef0123456789"),
        ("header 'Basic dXNlcjpwYXNzd29yZA=='", "dXNlcjpwYXNzd29yZA"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl expired", "eyJzdWIiOiIxIn0"),
        ("cannot reach postgres://app:hunter2@db:5432/app", "hunter2"),
        ("cannot reach redis://:hunter2@cache:6379/0", "hunter2"),
        ("GET https://host/v1?key=AIzaSyA1234567&alt=json", "SyA1234567"),
        ("GET https://host/v1?api_key=abcd1234&x=1", "abcd1234"),
        ("password=hunter2", "hunter2"),
        ("password: hunter2", "hunter2"),
        ("token='tok_1234567'", "tok_1234567"),
        ('{"api_key": "abcd1234efgh", "model": "m"}', "abcd1234efgh"),
        ('{"password":"hunter2"}', "hunter2"),
        ("client_secret=abcd1234", "abcd1234"),
        ("PGPASSWORD=hunter2x psql", "hunter2x"),
        ("MYSQL_PWD=hunter2x", "hunter2x"),
        ('{"accessToken": "abcd1234"}', "abcd1234"),
        ("AccountKey=abcd1234==;", "abcd1234"),
        ("SECRET_KEY_BASE=abcd1234", "abcd1234"),
        (r'{"content": "{\"password\": \"hunter2x\"}"}', "hunter2x"),
        ("mysql --password hunter2x", "hunter2x"),
        ("deploy --api-key abcd1234", "abcd1234"),
        ("curl -u me:hunter2x https://host", "hunter2x"),
        ("git clone https://0123456789abcdef01@github.com/x/y", "0123456789abcdef01"),
        ("https://hooks.slack.com/services/T01/B01/abcdefgh", "T01/B01/abcdefgh"),
        ("npm_abcdefghijklmnopqrstuvwx", "abcdefghijkl"),
        (f"{BEGIN}\nMIIEabcd\n-----END RSA PRIVATE KEY-----", "MIIEabcd"),
        (f"{BEGIN}\nMIIEabcd", "MIIEabcd"),
        ("/srv/backup_sk-proj-abcDEF123456789/x", "abcDEF123456789"),
        ("no such file my_AKIAIOSFODNN7EXAMPLE.txt", "AKIAIOSFODNN7"),
        ("DB_PASS=hunter2x", "hunter2x"),
    ],
)
def test_secrets_are_redacted(text: str, secret: str) -> None:
    kept = last_error_of(RuntimeError(text))
    assert secret not in kept
    assert "[redacted]" in kept


def test_text_around_a_secret_stays_readable() -> None:
    text = "401 for postgres://app:hunter2@db:5432/app with Bearer abcdef0123456789, see the docs"
    assert last_error_of(RuntimeError(text)) == (
        "RuntimeError: 401 for postgres://[redacted]@db:5432/app with Bearer [redacted], see the docs"
    )


@pytest.mark.parametrize(
    "text",
    [
        "sklearn.exceptions.NotFittedError is not fitted",
        "pkg_resources.DistributionNotFound",
        "skipped_everything_after_the_first",
        "the task-runner_is_not_configured_yet",
        "529 overloaded_error, request req_011CSHoEeqs5C35K2UUqR7Fy",
        "https://docs.example.com:8080/errors/codes#429 says why",
        "maximum context length is 8192 tokens: 9000 given",
        "KeyError: 'choices'",
        "ssh://build-service-account@git.example.com/shop.git cannot be fetched",
        "aws s3api get-object --key path/to/file",
        "docker run -u 1000:1000 alpine",
        "monkey=banana and max_tokens=4000",
        "user_pk_constraint_is_violated by transformers_hf_model_loader",
        "tests_pass=false",
    ],
)
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert last_error_of(RuntimeError(text)) == f"RuntimeError: {text}"


def test_no_secret_reaches_an_event_or_the_state() -> None:
    seen = list[Event]()
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock(), sinks=[seen.append])

    def fails() -> None:
        raise RuntimeError("bad key sk-proj-abcDEF123456789")

    with pytest.raises(RuntimeError):
        breaker.call(fails)
    assert "abcDEF123456789" not in repr(seen) + repr(breaker.snapshot())


def test_a_secret_across_the_cut_is_redacted_before_the_cut() -> None:
    kept = last_error_of(RuntimeError("x" * 190 + " sk-proj-abcDEF123456789"))
    assert "abc" not in kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one\ntwo\r\nthree\tfour", "one two three four"),
        ("bell\x07 null\x00 escape\x1b", "bell null escape"),
        ("\x1b[31mred\x1b[0m alert", "red alert"),
        ("\x1b[1;38;5;196mloud\x1b[0m", "loud"),
        ("right\u202eto left", "right to left"),
        ("zero\u200bwidth", "zero width"),
        ("\x9b31mC1 codes", "31mC1 codes"),
    ],
)
def test_control_characters_and_terminal_escapes_are_removed(text: str, kept: str) -> None:
    words = last_error_of(RuntimeError(text)).split()
    assert words == ["RuntimeError:", *kept.split()]


def test_letters_of_all_languages_stay() -> None:
    assert last_error_of(RuntimeError("größe 数 🙂")) == "RuntimeError: größe 数 🙂"


def test_a_text_that_no_encoding_can_represent_is_still_printable() -> None:
    assert last_error_of(RuntimeError("half \ud800 a pair")).encode().startswith(b"RuntimeError")


def test_a_long_text_is_shortened_and_marked() -> None:
    kept = last_error_of(RuntimeError("word " * 100_000))
    assert len(kept) <= 220
    assert kept.endswith("…")


@pytest.mark.parametrize("trouble", [RuntimeError("no text"), RecursionError(), MemoryError()])
def test_an_exception_whose_text_cannot_be_read_is_named_by_its_type(trouble: Exception) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise trouble

    assert last_error_of(Unreadable()) == "Unreadable"


def test_an_exception_whose_text_is_not_a_string_is_named_by_its_type() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            return 42  # type: ignore[return-value]  # noqa: PLE0307

    assert last_error_of(Odd()) == "Odd"


def test_ordinary_words_after_basic_and_bearer_are_not_redacted() -> None:
    assert redact("Basic terminal detected") == "Basic terminal detected"
    assert redact("Bearer authentication is missing") == "Bearer authentication is missing"
    assert redact("Basic dXNlcjpwYXNzd29yZDEyMw==") == "Basic [redacted]"
    assert redact("Bearer abcdefgh1234") == "Bearer [redacted]"
    assert redact("Bearer abcdefghijklmnopqrstuvwxyz") == "Bearer [redacted]"


def test_text_of_an_agent_keeps_its_lines_and_loses_its_secrets() -> None:
    kept = redact_lines("one\n\tpassword=hunter2\nthree")
    assert kept == "one\n\tpassword=[redacted]\nthree"
    assert len(redact_lines("x" * 10_000)) == 4_000


def test_a_secret_across_the_beginning_of_an_end_is_redacted() -> None:
    secret = f"{BEGIN}\n{'MIIE' * 400}\n-----END RSA PRIVATE KEY-----"
    assert redact_end(f"{secret} at the end", 100) == "[redacted] at the end"
    assert redact_end("PASSWORD=" + "x" * 99 + " end", 20) == "SWORD=[redacted] end"


def test_no_detector_receives_a_secret_of_a_step_or_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaker = CircuitBreaker("session/1", clock=FakeClock())
    sent: list[Signal] = []
    monkeypatch.setattr(type(breaker), "_apply", lambda _, message: sent.append(message.signal))
    secret = "token=abcd1234"
    act = AgentStep("Bash", f"curl -d {secret}", f"sent\n{secret}", f"I use {secret}")
    breaker.record(Signal(ok=True, step=act, violation=f"secrets out: {secret}"))
    (told,) = sent
    assert "abcd1234" not in repr(told)
    assert told.step is not None
    assert told.step.result == "sent\ntoken=[redacted]"


def test_a_step_survives_its_transfer_to_another_process() -> None:
    tell = Record(Signal(step=AgentStep("Bash", "ls", "a\nb", None), context_used=0.5), Permit(3))
    back = load_message(dump_message(tell))
    assert back == tell
    assert isinstance(back.signal.step, AgentStep)
