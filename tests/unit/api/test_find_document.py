"""Document and question are found by stated rules, and nothing is used twice or lost uncounted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.api.openai.find_document import Ambiguous, Conversation, DocumentQuestion, Part, Window, find_document

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
    assert found == DocumentQuestion(found_by="files", question="Who?", files=("f1",))


def test_files_beside_the_messages_count_and_none_is_read_twice() -> None:
    found = decide(file("f1"), file("f2"), text("user", 0, words="Who?"), files=("f2", "f3"))
    assert found == DocumentQuestion(found_by="files", question="Who?", files=("f1", "f2", "f3"))


def test_a_follow_up_question_keeps_the_files_of_earlier_turns() -> None:
    found = decide(file("f1"), text("user", 0, words="Who?"), text("assistant", 1), text("user", 2, words="And when?"))
    assert found == DocumentQuestion(found_by="files", question="And when?", files=("f1",), left_out=2)


def test_short_system_texts_go_in_front_of_the_question() -> None:
    found = decide(text("system", 0, words="Answer in French."), file("f1", 1), text("user", 1, words="Who?"))
    assert isinstance(found, DocumentQuestion)
    assert (found.instructions, found.question) == ("Answer in French.", "Who?")


def test_files_without_a_question_are_ambiguous() -> None:
    assert isinstance(decide(file("f1")), Ambiguous)
    assert isinstance(decide(file("f1"), text("user", 0), text("assistant", 1)), Ambiguous)


def test_a_long_text_beside_files_is_one_more_document() -> None:
    found = decide(file("f1"), text("user", 0, N + 1, "long"), text("user", 0, words="Who?"))
    assert found == DocumentQuestion(found_by="files", question="Who?", files=("f1",), texts=("long",))


def test_a_question_within_a_long_text_beside_files_is_found() -> None:
    found = decide(file("f1"), text("user", 0, N + 1, "A long letter.\n\nWho signed?"))
    assert found == DocumentQuestion(found_by="files", question="Who signed?", files=("f1",), texts=("A long letter.",))


def test_a_file_without_words_is_asked_what_the_system_text_says() -> None:
    found = decide(text("system", 0, words="List the names."), file("f1", 1))
    assert found == DocumentQuestion(found_by="files", question="List the names.", files=("f1",))
    answered = decide(text("system", 0, words="List the names."), file("f1", 1), text("assistant", 2))
    assert isinstance(answered, Ambiguous)


def test_what_fits_the_window_is_passed_through() -> None:
    assert decide(text("system", 0), text("user", 1)) == Conversation()


def test_a_long_part_is_the_document_and_the_last_short_one_the_question() -> None:
    found = decide(text("user", 0, 9000, "long"), text("user", 0, words="first?"), text("user", 0, words="last?"))
    assert found == DocumentQuestion(found_by="length", question="last?", texts=("long",), left_out=1)


def test_who_asks_for_a_reading_gets_none_passed_through() -> None:
    found = decide(text("user", 0, N + 1, "long"), text("user", 0, words="Who?"), wants_reading=True)
    assert found == DocumentQuestion(found_by="length", question="Who?", texts=("long",))


def test_who_asks_for_a_reading_may_send_a_short_document() -> None:
    found = decide(text("user", 0, words="The door is green."), text("user", 0, words="Who?"), wants_reading=True)
    assert found == DocumentQuestion(found_by="length", question="Who?", texts=("The door is green.",))
    found = decide(text("user", 0, words="The door is green.\nWhich colour is it?"), wants_reading=True)
    assert found == DocumentQuestion(found_by="one text", question="Which colour is it?", texts=("The door is green.",))
    nothing = decide(text("user", 0, words="Hello."), wants_reading=True)
    assert isinstance(nothing, Ambiguous)
    assert nothing.code == "ambiguous_document"


LONG = "The house stood on a hill.\n\nIts door was green."
ASKS = "Which colour is the door?"


def long(words: str, message: int = 1) -> Part:
    return text("user", message, 9000, words)


def test_the_question_within_one_text_is_found_and_its_system_text_instructs() -> None:
    found = decide(text("system", 0, words="Be brief."), long(f"{LONG}\n\n{ASKS}"))
    assert found == DocumentQuestion(found_by="one text", question=ASKS, instructions="Be brief.", texts=(LONG,))


def test_what_a_template_says_beside_question_and_context_instructs() -> None:
    found = decide(text("system", 0, words="Be brief."), long(f"Cite.\n<context>{LONG}</context>\n{ASKS}"))
    assert isinstance(found, DocumentQuestion)
    assert (found.instructions, found.question, found.texts) == ("Be brief.\n\nCite.", ASKS, (LONG,))


def test_a_short_system_text_is_the_question_of_a_text_that_asks_nothing() -> None:
    for words in (ASKS, "Summarise.", "Le sujet, en trois mots."):
        found = decide(text("system", 0, words=words), long(LONG))
        assert found == DocumentQuestion(found_by="system text", question=words, texts=(LONG,))


def test_marks_come_before_a_system_text_that_asks_and_that_before_a_paragraph_that_does() -> None:
    system = text("system", 0, words="What is it about?")
    marked = decide(system, long(f"{LONG}\n\nQuestion: {ASKS}"))
    written = decide(system, long(f"{LONG}\n\n{ASKS}"))
    assert isinstance(marked, DocumentQuestion)
    assert (marked.question, marked.instructions) == (ASKS, "What is it about?")
    assert isinstance(written, DocumentQuestion)
    assert (written.question, written.found_by) == ("What is it about?", "system text")


def test_a_long_text_that_asks_nothing_is_ambiguous_and_told_how_to_be_written() -> None:
    found = decide(text("user", 0, 9000))
    assert isinstance(found, Ambiguous)
    assert "file part" in found.message
    assert found.code == "ambiguous_document"


def test_a_long_conversation_of_short_texts_is_too_long() -> None:
    found = decide(*(text(role, turn, N) for turn in range(10) for role in ("user", "assistant")), text("user", 10))
    assert isinstance(found, Ambiguous)
    assert found.code == "context_length_exceeded"


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
        assert found.files or found.texts
        by_role = {
            role: {part.text for part in texts if part.role == role and part.tokens <= room.question_tokens}
            for role in ("system", "developer", "user")
        }
        askers = by_role["user"] | by_role["system"] | by_role["developer"]
        if found.found_by == "length":
            askers = {part.text for part in texts if part.role == "user"} if wants else by_role["user"]
        assert all(line in askers for line in found.question.split("\n\n"))
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
