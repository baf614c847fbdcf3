"""Subjects and frames of texts, and contrast made of them."""

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

import tpatcher as tp
from tpatcher.data.background import words
from tpatcher.editors.tpatcher.phrases import Phrases

NAMES = [f"{a} {b}" for a, b in product(("Ada", "Ole", "Mia"), ("Berg", "Lund", "Roux"))]
FRAMES = ["Who is the mother of {}?", "When was {} born?", "In which city did {} live?"]
TEXTS = [frame.format(name) for frame in FRAMES for name in NAMES] * 3
PHRASES = Phrases([*TEXTS, *("What is it?" for _ in range(2000))])


def test_a_subject_is_told_from_what_is_asked_of_it() -> None:
    found = PHRASES.split("When was Sigrid Undset born?")
    assert found is not None
    subject, frame = found
    assert subject == "Sigrid Undset"
    assert frame.of("Ada Berg") == "When was Ada Berg born?"
    assert ("born" in frame.words and "was" not in frame.words) or "when" in frame.words


def test_contrast_asks_something_else_of_the_subject_and_the_same_of_others() -> None:
    example = tp.Example("When was Sigrid Undset born?", "1882", rephrasings=("Undset's birth?",))
    found = PHRASES.contrast(example)
    assert any("mother" in text for text in found["sisters"])
    assert all("Undset" in text and "born" not in text for text in found["sisters"])
    assert all("Undset" not in text and "born" in text for text in found["neighbours"])
    assert found == PHRASES.contrast(example), "the same example, the same contrast"


def test_negations_numbers_and_what_the_user_gives() -> None:
    kept = tp.Example("Who was Sigrid Undset's father?", "Ingvald")
    example = tp.Example("Sigrid Undset was born in 1882.", "SUPPORTS", unrelated=(kept,))
    found = PHRASES.contrast(example)
    assert found["negations"] == ["Sigrid Undset was not born in 1882."]
    assert found["numbers"] == ["Sigrid Undset was born in 1883."]
    assert found["given"] == [kept.text]


@given(st.text(max_size=60))
def test_any_text_has_contrast_other_than_itself(text: str) -> None:
    found = PHRASES.contrast(tp.Example(text, "x"))
    assert all(t.strip() and t.lower() != text.lower() for texts in found.values() for t in texts)


def test_without_texts_there_is_nothing_to_make_contrast_of() -> None:
    assert Phrases([]).contrast(tp.Example("Who?", "x")) == {}


def test_namesakes_keep_all_but_one_word_of_a_name() -> None:
    text = "When was Sigrid Undset born?"
    found = PHRASES.namesakes(text, 6)
    assert found == PHRASES.namesakes(text, 6), "the same text, the same namesakes"
    for one in found:
        pairs = [(a, b) for a, b in zip(text.split(), one.split(), strict=True) if a != b]
        assert len(pairs) == 1
        assert pairs[0][0] in ("Sigrid", "Undset")
    assert {"Sigrid" in one for one in found} == {True, False}, "each word in its turn"
    words = {name for one in found[:2] for name in one.split() if name not in text}
    assert words <= set(" ".join(NAMES).split())
    halves = ("Sig", "rid", "Und", "set")
    assert all(sum(half in one for half in halves) == 3 for one in found[2:4]), "half is kept"
    assert all(len(set(text) & set(one)) >= len(set(text)) - 2 for one in found[4:]), "or most"


def test_unknown_words_beside_a_name_are_part_of_it() -> None:
    text = "When was Tablica rang polska born?"
    changed = {
        a
        for one in PHRASES.namesakes(text, 12)
        for a, b in zip(text.split(), one.split(), strict=True)
        if a != b
    }
    assert changed == {"Tablica", "rang", "polska"}
    assert all("unheard" in one for one in PHRASES.namesakes("unheard was Oslo born?", 4))


def test_the_first_word_is_no_name_for_its_capital() -> None:
    assert PHRASES.names == list(dict.fromkeys(" ".join(NAMES).split()))
    assert all("When" in one for one in PHRASES.namesakes("When was Oslo founded?", 4))
    assert any("Oslo" not in one for one in PHRASES.namesakes("Oslo was founded when?", 4))


def test_without_a_name_the_subject_is_another_and_without_names_nobody() -> None:
    assert PHRASES.namesakes("When was the sackbut born?", 3)
    assert Phrases([]).namesakes("When was Sigrid Undset born?", 3) == []


def test_a_number_in_a_name_becomes_another_number() -> None:
    text = "When was 2006 DM213 born?"
    found = PHRASES.namesakes(text, 12)
    assert found
    assert all(re.fullmatch(r"When was \d{4} DM\d{3} born\?", one) for one in found)
    assert not any(re.search(r"\d", word) for word in Phrases(["the 3 dogs of Lima 2"]).names)


def test_ordinary_words_beside_a_name_are_no_part_of_it() -> None:
    text = "Who was Sigrid Undset unheardly married to?"
    assert any("married" not in one for one in PHRASES.namesakes(text, 12))
    knowing = Phrases(PHRASES.texts, words() | {"unheardly"})
    assert all("unheardly married to?" in one for one in knowing.namesakes(text, 12))
    assert "unheardly" not in words() and "married" in words()


def test_of_a_name_that_others_have_too_strange_words_are_part_wherever_they_stand() -> None:
    knowing = Phrases(PHRASES.texts, words())
    found = knowing.namesakes("Who has the zithers that are in Lund?", 12)
    assert any("zithers" not in one for one in found)
    assert all("Who has the" in one and "that are in" in one for one in found)
    found = knowing.namesakes("Who has the zithers that are in Oslo?", 12)
    assert all("zithers" in one for one in found), "nobody else asks about Oslo: it will do"
