"""Document and question are found by stated rules, and nothing is used twice or lost uncounted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.api.find_document import Ambiguous, Conversation, DocumentQuestion, Part, Window, find_document

N = Window(context_tokens=8192, prompt_tokens=0, output_tokens=0).question_tokens


def text(role: str, message: int, tokens: int = 10, words: str = "") -> Part:
    return Part(role=role, message=message, text=words or f"{role} {message} {tokens}", tokens=tokens)


def file(name: str, message: int = 0) -> Part:
    return Part(role="user", message=message, file=name)


def window(parts: list[Part], context_tokens: int = 8192) -> Window:
    return Window(context_tokens=context_tokens, prompt_tokens=sum(p.tokens for p in parts), output_tokens=256)


def decide(
    *parts: Part, files: tuple[str, ...] = (), wants_reading: bool = False
) -> Conversation | DocumentQuestion | Ambiguous:
    return find_document(parts, window(list(parts)), files=files, wants_reading=wants_reading)


def test_a_file_part_is_the_document_even_if_everything_would_fit() -> None:
    found = decide(file("f1"), text("user", 0, words="Who?"))
    assert found == DocumentQuestion(question="Who?", files=("f1",))


def test_files_beside_the_messages_count_and_none_is_read_twice() -> None:
    found = decide(file("f1"), file("f2"), text("user", 0, words="Who?"), files=("f2", "f3"))
    assert found == DocumentQuestion(question="Who?", files=("f1", "f2", "f3"))


def test_a_follow_up_question_keeps_the_files_of_earlier_turns() -> None:
    found = decide(file("f1"), text("user", 0, words="Who?"), text("assistant", 1), text("user", 2, words="And when?"))
    assert found == DocumentQuestion(question="And when?", files=("f1",), left_out=2)


def test_short_system_texts_go_in_front_of_the_question() -> None:
    found = decide(text("system", 0, words="Answer in French."), file("f1", 1), text("user", 1, words="Who?"))
    assert isinstance(found, DocumentQuestion)
    assert (found.instructions, found.question) == ("Answer in French.", "Who?")


def test_files_without_a_question_are_ambiguous() -> None:
    assert isinstance(decide(file("f1")), Ambiguous)
    assert isinstance(decide(file("f1"), text("user", 0), text("assistant", 1)), Ambiguous)


def test_a_long_text_beside_files_is_ambiguous() -> None:
    assert isinstance(decide(file("f1"), text("user", 0, N + 1)), Ambiguous)


def test_what_fits_the_window_is_passed_through() -> None:
    assert decide(text("system", 0), text("user", 1)) == Conversation()


def test_a_long_part_is_the_document_and_the_last_short_one_the_question() -> None:
    found = decide(text("user", 0, 9000, "long"), text("user", 0, words="first?"), text("user", 0, words="last?"))
    assert found == DocumentQuestion(question="last?", texts=("long",), left_out=1)


def test_who_asks_for_a_reading_gets_none_passed_through() -> None:
    found = decide(text("user", 0, N + 1, "long"), text("user", 0, words="Who?"), wants_reading=True)
    assert found == DocumentQuestion(question="Who?", texts=("long",))


def test_document_and_question_in_one_text_are_ambiguous_and_told_how_to_be_written() -> None:
    found = decide(text("user", 0, 9000))
    assert isinstance(found, Ambiguous)
    assert "file part" in found.message


def test_a_question_that_was_answered_is_not_asked_again() -> None:
    assert isinstance(decide(text("user", 0), text("assistant", 1), text("user", 2, 9000)), Ambiguous)


def test_a_long_earlier_answer_is_no_document() -> None:
    assert isinstance(decide(text("assistant", 0, 9000), text("user", 1)), Ambiguous)


PARTS = st.lists(
    st.builds(
        lambda role, message, tokens, is_file, index: (
            Part(role="user", message=message, file=f"f{index}")
            if is_file
            else Part(role=role, message=message, text=f"{role}-{message}-{tokens}", tokens=tokens)
        ),
        st.sampled_from(["system", "developer", "user", "assistant"]),
        st.integers(0, 5),
        st.integers(1, 3 * N),
        st.booleans(),
        st.integers(0, 3),
    ),
    max_size=12,
).map(lambda parts: sorted(parts, key=lambda part: part.message))


@given(PARTS, st.integers(512, 20_000), st.lists(st.sampled_from(["f0", "f9"]), max_size=2), st.booleans())
def test_the_rules_hold_for_any_conversation(
    parts: list[Part], context_tokens: int, files: list[str], wants: bool
) -> None:
    room = window(parts, context_tokens)
    found = find_document(parts, room, files=files, wants_reading=wants)
    named = {*files, *(part.file for part in parts if part.file)}
    texts = [part for part in parts if part.text]
    if isinstance(found, Conversation):
        assert not named
        assert room.fits
        assert not wants
    elif isinstance(found, DocumentQuestion):
        assert set(found.files) == named
        assert bool(found.files) != bool(found.texts), "documents come from files or from texts, never from both"
        users = {part.text for part in texts if part.role == "user" and part.tokens <= room.question_tokens}
        assert all(line in users for line in found.question.split("\n\n"))
        assert not {part.text for part in texts if part.role == "assistant"} & {found.question, *found.texts}
        used = [*found.texts, *found.question.split("\n\n"), *filter(None, found.instructions.split("\n\n"))]
        assert len(used) + found.left_out == len(texts), "every text is used once or counted"
    else:
        assert "file part" in found.message


@given(PARTS, st.integers(512, 20_000))
def test_a_conversation_without_files_that_fits_always_passes(parts: list[Part], context_tokens: int) -> None:
    texts = [part for part in parts if part.text]
    room = window(texts, context_tokens)
    if room.fits:
        assert find_document(texts, room) == Conversation()
