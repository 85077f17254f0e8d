"""The report of a run: complete, one file, readable without a script, with escaped quotations."""

import json
import os
import re
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from switchgear._cli import main
from switchgear._report.charts import element
from switchgear._report.run_page import page, write_report
from switchgear._run.record import RunFolder, RunUnreadable
from unit.run_facts import end, facts, readings, run
from unit.runner_stage import Stage

VOID = {"meta", "br", "col"}


class Reader(HTMLParser):
    """Parses a page; raises an error if it is not well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.titles: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "title":
            self.titles.append(data)
        elif "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)

    def ids(self) -> set[str | None]:
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


def check_harmless(text: str) -> Reader:
    """Nothing in it runs, loads or leads anywhere outside."""
    read = Reader(text)
    for tag, attributes in read.tags:
        assert tag not in {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} has {name}"
            assert name not in {"src", "style", "srcset", "action", "xlink:href"}
            assert name != "href" or re.fullmatch(r"#iteration--?\d+", value or "")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    return read


def test_every_iteration_is_there_with_its_outcome_cost_and_error() -> None:
    lines = [facts(n) for n in range(1, 6)]
    lines += [facts(n, outcome="failed", error=f"Error number {n}") for n in range(6, 9)]
    read = check_harmless(page(run(end=end()), lines))
    assert read.ids() == {f"iteration-{n}" for n in range(1, 9)}
    for n in range(6, 9):
        assert f"Error number {n}" in read.text
    assert len([each for each in read.titles if each.startswith("iteration 7: failed")]) == 1
    assert sum(tag == "details" for tag, _ in read.tags) == 8 + 1, "and the options"


def test_the_report_shows_the_end_the_reason_the_saved_work_and_how_to_continue() -> None:
    read = Reader(page(run(end=end(), readings=readings(0.6)), [facts()]))
    for said in (
        "circuit_breaker",
        "Circuit breaker tripped: 3 consecutive failures (threshold: 3)",
        "a proof that no detector holds",
        "same_error: as calm as it can be",
        "Partial work: 1 file changed since the start, +2 -1 lines",
        "git diff HEAD refs/switchgear/runs/20270115-080000-abcdef",
        "switchgear resume 20270115-080000-abcdef --force-close",
        "something to know",
    ):
        assert said in read.text, said


def test_a_completed_run_has_no_partial_work_and_nothing_to_continue_with() -> None:
    ended = end(success=True, exit_reason="completed", resume=None)
    read = Reader(page(run(end=ended), [facts()]))
    assert "What was done" in read.text
    assert "1 file changed since the start, +2 -1 lines" in read.text
    assert "Partial work" not in read.text
    assert "go on" not in read.text.lower()


def test_evidence_that_a_detector_shows_is_reported_once() -> None:
    held = readings(1.0, "three in a row")
    text = page(run(end=end(evidence=[held[0]["reason"]]), readings=held), [])
    assert Reader(text).text.count("consecutive_failures: three in a row") == 1


def test_a_nudge_is_quoted_and_marked_in_the_timeline() -> None:
    quiet = Reader(page(run(), [facts(1), facts(2)]))
    told = Reader(page(run(), [facts(1), facts(2, nudge="- 2 failures in a row (threshold 3)")]))
    assert "Nudges" not in quiet.text
    assert "▼" not in quiet.text
    assert "- 2 failures in a row (threshold 3)" in told.text
    assert told.text.count("▼") == 2, "in the drawing and in its legend"


def test_the_budget_is_a_line_only_where_there_is_one() -> None:
    options = {"budget_micros": 2_000_000}
    assert "budget $2.00" in Reader(page(run(options=options), [facts()])).text
    assert "budget $" not in Reader(page(run(), [facts()])).text
    held = run(options={"budget_micros": None}, may_spend_micros=3_000_000)
    assert "budget $3.00" in Reader(page(held, [facts()])).text


def test_an_unknown_price_is_reported_and_not_counted_as_zero() -> None:
    read = Reader(page(run(), [facts(cost_micros=None)]))
    assert "unknown cost" in read.text
    assert "iteration 1: unknown cost" in read.titles


def test_a_call_that_never_reached_its_provider_has_no_unknown_price() -> None:
    none = {"input": 0, "output": 0}
    lost = facts(outcome="provider", cost_micros=None, tokens=none)
    assert "price unknown" not in Reader(page(run(), [lost])).text


def test_each_outcome_and_phase_has_its_own_look() -> None:
    outcomes = ["worked", "failed", "no change", "unproven", "provider", "stopped", "blocked"]
    looks = set()
    for outcome in outcomes:
        tags = Reader(page(run(), [facts(outcome=outcome)])).tags
        blocks = (attributes["class"] for tag, attributes in tags if tag == "rect")
        looks.add(next(blocks))
    assert len(looks) == len(outcomes)
    lamps = {
        tuple(
            (tag, attributes.get("class"))
            for tag, attributes in Reader(page(run(), [facts(phase=phase)])).tags
            if tag in {"circle", "path"}
        )
        for phase in ("closed", "tripping", "open")
    }
    assert len(lamps) == 3


def test_a_run_without_an_iteration_and_one_that_continues_can_be_reported() -> None:
    read = check_harmless(page(run(), []))
    assert "No iteration was finished." in read.text
    assert "This run has not ended, or was broken off." in read.text


def test_a_thousand_iterations_are_all_there_and_the_axis_can_be_read() -> None:
    text = page(run(), [facts(n) for n in range(1, 1001)])
    read = check_harmless(text)
    assert len(read.ids()) == 1000
    ticks = re.findall(r'y="200" class="axis" text-anchor="middle">(\d+)<', text)
    assert 10 < len(ticks) < 40


def test_a_long_pause_is_drawn_as_a_break_and_not_to_scale() -> None:
    late = "2027-01-16T08:00:00.000+00:00"
    assert "⋯" in page(run(), [facts(1), facts(2, started_at=late)])
    assert "⋯" not in page(run(), [facts(1), facts(2)])


HOSTILE = st.one_of(
    st.text(st.characters(codec=None), max_size=60),
    st.sampled_from(
        (
            "</style><script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "javascript:alert(1)",
            "<!--",
            "]]>",
            "&lt;b&gt;&#60;",
            "\x1b]0;title\x07\x00\u202e\ud800",
            "a\nb\r\nc\td",
        )
    ),
)


@given(HOSTILE)
def test_no_text_of_an_agent_becomes_part_of_the_page(text: str) -> None:
    """Every place that a text could be in, at once."""
    line = facts(
        outcome=text,
        phase=text,
        error=text,
        nudge=text,
        remark=text,
        notes=[text],
        tools={text: 1},
        files=[text],
        errors=[{"source": "tool", "kind": text, "text": text, "key": "k", "times": 2}],
        agent={"exit_code": text, "result": text, "question": text, "problem": text},
        validation={"command": text, "ok": False, "tail": text, "seconds": 1.0},
        repeated={"tool": text, "arguments": text, "error": text, "times": 5},
        readings=readings(0.5, text),
        prompt=text,
        log=text,
    )
    ended = end(reason=text, evidence=[text], resume=text, exit_reason=text, notes=[text])
    whole = run(task=text, agent=text, folder=text, circuit=text, end=ended, options={text: text})
    made = page(whole, [line])
    read = check_harmless(made)
    assert {tag for tag, _ in read.tags} <= SHAPES
    shown = made.replace("\n", "")
    assert shown.isprintable()
    printable = "".join(sign for sign in text if sign.isprintable() and not sign.isspace())
    found = "".join(read.text.split())
    assert len(text.split()) != 1 or not text.isprintable() or printable in found


def test_a_text_in_an_attribute_cannot_leave_it() -> None:
    (tag, attributes), *others = Reader(element("p", title="\"'><b>", class_=None)).tags
    assert (tag, attributes) == ("p", {"title": "\"'><b>"})
    assert others == []


SHAPES = {tag for tag, _ in Reader(page(run(end=end()), [facts()])).tags} | {
    *("tbody", "td", "code", "polygon", "path")
}

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(st.data())
def test_a_record_with_any_content_can_be_reported(data: st.DataObject) -> None:
    line, whole = facts(), run(end=end())
    for record in (line, whole, whole["end"], whole["state"], whole["end"]["checkpoint"]):
        for key in data.draw(st.lists(st.sampled_from(sorted(record)), max_size=4)):
            record[key] = data.draw(JUNK)
    check_harmless(page(whole, [line, facts(2)]))


def test_an_empty_iteration_is_numbered_by_its_place() -> None:
    assert Reader(page(run(), [{}, {}])).ids() == {"iteration-1", "iteration-2"}


# The file


def record(tmp_path: Path, **changed: Any) -> RunFolder:
    made = RunFolder(tmp_path / ".switchgear" / "runs" / "20270115-080000-abcdef")
    made.make()
    made.write(run(**changed))
    made.add(facts())
    return made


def test_the_report_is_one_private_file_without_leftovers(tmp_path: Path) -> None:
    made = record(tmp_path)
    place = write_report(made)
    assert place == made.path / "report.html"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert {path.name for path in made.path.iterdir() if path.is_file()} == {
        "run.json",
        "iterations.jsonl",
        "report.html",
    }


def test_an_unreadable_record_leaves_the_old_report_unchanged(tmp_path: Path) -> None:
    made = record(tmp_path)
    before = write_report(made).read_text(encoding="utf-8")
    (made.path / "run.json").write_text("{", encoding="ascii")
    with pytest.raises(RunUnreadable):
        write_report(made)
    assert (made.path / "report.html").read_text(encoding="utf-8") == before


def test_texts_that_no_encoding_can_represent_are_written(tmp_path: Path) -> None:
    made = record(tmp_path, task="lost \ud800 half")
    assert "lost \\ud800 half" in write_report(made).read_text(encoding="utf-8")


def test_a_link_that_an_agent_put_in_place_of_the_report_is_not_followed(tmp_path: Path) -> None:
    made = record(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("as it was", encoding="ascii")
    (made.path / "report.html").symlink_to(precious)
    (made.path / f".report.html.{os.getpid()}").symlink_to(precious)
    assert write_report(made).is_file()
    assert not (made.path / "report.html").is_symlink()
    assert precious.read_text(encoding="ascii") == "as it was"


def test_the_verb_writes_the_report_again_and_prints_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = record(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["runs", "report", "last"])
    assert done.exit_code == 0, done.output
    assert Path(done.output.strip()).samefile(made.path / "report.html")


def test_the_report_of_a_real_run_contains_its_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.dependencies = stage.dependencies._replace(report=write_report)
    result = stage.run("fail('Error: it is <b>broken</b>')", consecutive_failures=3)
    assert result.report is not None
    text = Path(result.report).read_text(encoding="utf-8")
    read = check_harmless(text)
    assert "circuit_breaker" in read.text
    assert "Error: it is <b>broken</b>" in read.text
    assert json.loads((Path(result.report).parent / "run.json").read_text())["end"]["report"] == (
        result.report
    )
