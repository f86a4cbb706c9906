"""What a streaming client is told of a message is always a beginning of it, and nothing twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.run.events import Written
from serving.api.openai.written_text import WrittenText
from serving.jobs.events import EventRecorder
from serving.jobs.job import EventRecord


def record(at: int, text: str) -> EventRecord:
    return EventRecord(seq=1, kind="written", data={"at": at, "text": text}, created_unix_s=0.0)


def test_a_call_that_is_sent_again_and_writes_the_same_is_told_once() -> None:
    written = WrittenText()
    pieces = [written.add(record(0, "He")), written.add(record(2, "llo"))]
    pieces += [written.add(record(0, "Hel")), written.add(record(3, "lo the")), written.rest("Hello there.")]
    assert pieces == ["He", "llo", "", " the", "re."]


def test_what_differs_is_not_told() -> None:
    written = WrittenText()
    assert written.add(record(0, "Hello")) == "Hello"
    assert written.add(record(0, "Good morning")) == ""
    assert written.rest("Good morning.") is None
    assert written.told == "Hello"


@given(st.text(min_size=1), st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_a_text_comes_whole_however_it_was_cut_and_whoever_tells_it_again(
    text: str, first: list[int], second: list[int]
) -> None:
    """Two attempts, whose records have the same keys where they tell the same: those are kept once."""
    kept: dict[str, EventRecord] = {}
    for cuts in (sorted(first), sorted(second)):
        recorder = EventRecorder()
        for cut in cuts:
            if (new := recorder.record(Written(text=text[:cut]))) is not None:
                kept.setdefault(new.key, EventRecord(seq=1, kind=new.kind, data=dict(new.data), created_unix_s=0.0))
    written = WrittenText()
    pieces = [written.add(record) for record in kept.values()]
    rest = written.rest(text)
    assert rest is not None
    assert "".join([*pieces, rest]) == text
