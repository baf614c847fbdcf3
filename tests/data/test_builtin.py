"""The built-in facts are right, said in clean words, and split without leaks."""

import string
from collections import Counter
from functools import cache

import pytest

from tpatcher.data.builtin import Fact, Item, builtin_fc, builtin_qa, facts, grouped, phrasings
from tpatcher.data.split import Split
from tpatcher.example import matches, normal

USES = {"train": 10, "test": 1, "rephrase": 2}
HAND_CHECKED = [
    ("capital", "France", "Paris"),
    ("capital", "Australia", "Canberra"),
    ("capital", "Myanmar", "Naypyidaw"),
    ("state_capital", "New York", "Albany"),
    ("state_abbreviation", "Alaska", "AK"),
    ("currency", "Japan", "Japanese yen"),
    ("currency", "Croatia", "euro"),
    ("official_language", "Brazil", "Portuguese"),
    ("official_language", "Switzerland", "Romansh"),
    ("continent", "Egypt", "Africa"),
    ("continent", "Turkey", "Europe"),
    ("calling_code", "Italy", "+39"),
    ("iso_code", "Switzerland", "CHE"),
    ("internet_domain", "the United Kingdom", ".uk"),
    ("language_code", "Greek", "el"),
    ("chemical_symbol", "tungsten", "W"),
    ("atomic_number", "gold", "79"),
    ("city_country", "Timbuktu", "Mali"),
    ("us_city_state", "Seattle", "Washington"),
    ("airport_city", "ORD", "Chicago"),
    ("book_author", "Middlemarch", "George Eliot"),
    ("painting_painter", "Guernica", "Pablo Picasso"),
    ("music_composer", "Carmen", "Georges Bizet"),
    ("film_director", "Seven Samurai", "Akira Kurosawa"),
    ("animal_class", "the axolotl", "amphibian"),
    ("mountain_country", "Mount Kilimanjaro", "Tanzania"),
    ("company_country", "Lego", "Denmark"),
]


@cache
def qa() -> Split:
    return builtin_qa()


@cache
def fc() -> Split:
    return builtin_fc()


@pytest.fixture(params=["qa", "fc"])
def split(request: pytest.FixtureRequest) -> Split:
    return qa() if request.param == "qa" else fc()


def by_key() -> dict[tuple[str, str], Fact]:
    return {(f.relation, f.subject): f for f in facts()}


def test_there_are_enough_facts_of_enough_relations() -> None:
    assert len(facts()) >= 5000
    counts = Counter(f.relation for f in facts())
    assert len(counts) >= 14
    assert min(counts.values()) >= 50
    assert set(counts) == set(phrasings())


def test_a_subject_occurs_once_in_a_relation() -> None:
    keys = Counter((f.relation, normal(f.subject)) for f in facts())
    assert [k for k, n in keys.items() if n > 1] == []


@pytest.mark.parametrize(("relation", "subject", "answer"), HAND_CHECKED)
def test_hand_checked_facts(relation: str, subject: str, answer: str) -> None:
    fact = by_key()[relation, subject]
    assert matches(answer, (fact.answer, *fact.also))


def test_every_relation_has_a_hand_checked_fact() -> None:
    assert {r for r, _, _ in HAND_CHECKED} == set(phrasings())


def test_facts_are_clean_text() -> None:
    for fact in facts():
        answers = (fact.answer, *fact.also)
        for text in (fact.subject, *answers):
            assert text == " ".join(text.split()) != ""
            assert "�" not in text and text.isprintable()
            assert "{" not in text and "}" not in text
        assert len({normal(a) for a in answers}) == len(answers), fact
        assert len(fact.answer) <= 40, fact


def test_answers_differ_from_their_subjects() -> None:
    same = [f for f in facts() if f.subject.removeprefix("the ") == f.answer]
    assert same == []


def test_a_text_ends_with_one_mark() -> None:
    for relation, subject in (("capital", "the United States"), ("painting_painter", "Whaam!")):
        fact = by_key()[relation, subject]
        for ways in phrasings()[relation].values():
            for template in (t for use in ways.values() for t in use):
                text = Item(fact, fact.answer, "").text(template)
                assert not text.endswith(("..", "!.", "??")), text
                assert text[-1] in ".?!", text


def test_templates_have_their_placeholders() -> None:
    for forms in phrasings().values():
        for form, wanted in (("question", ["subject"]), ("claim", ["answer", "subject"])):
            every = [t for use in forms[form].values() for t in use]  # type: ignore[index]
            assert len(set(every)) == len(every) >= (8 if form == "question" else 6)
            for template in every:
                fields = [name for _, name, _, _ in string.Formatter().parse(template) if name]
                assert sorted(fields) == wanted, template
                assert template[-1] in ".?" and template.isascii(), template


def test_every_use_has_enough_templates() -> None:
    for relation, forms in phrasings().items():
        for ways in forms.values():
            assert all(len(ways[use]) >= n for use, n in USES.items()), relation  # type: ignore[index]


def test_no_text_occurs_twice(split: Split) -> None:
    texts = [e.text for part in (split.train, split.val, split.test, split.edit) for e in part]
    texts += [r for e in split.edit for r in e.rephrasings]
    assert [t for t, n in Counter(texts).items() if n > 1] == []


def test_parts_have_their_sizes(split: Split) -> None:
    assert len(split.edit) == round(0.15 * len(facts()))
    assert len(split.test) >= len(facts()) - len(split.edit)
    assert len(split.train) >= 4 * len(split.test)
    assert 0 < len(split.val) < len(split.test)
    assert all(len(e.rephrasings) >= 2 for e in split.edit)


def test_a_text_begins_with_a_capital_where_a_name_does_not_forbid_it(split: Split) -> None:
    assert not any(e.text.startswith("the ") for e in (*split.train, *split.edit))


def test_training_examples_know_their_other_phrasings(split: Split) -> None:
    trained = {e.text: e for e in split.train}
    for e in split.train:
        assert len(e.rephrasings) >= USES["train"] - 2  # one may be kept for validation
        for other in (trained[r] for r in e.rephrasings):
            assert (other.answer, other.also) == (e.answer, e.also)
            assert e.text in other.rephrasings


def test_grouped_has_every_training_text_once() -> None:
    for name, split in (("builtin-qa", qa()), ("builtin-fc", fc())):
        texts = [t for e in grouped(name) for t in (e.text, *e.rephrasings)]
        assert sorted(texts) == sorted(e.text for e in split.train)


def test_the_same_seed_gives_the_same_split() -> None:
    for build in (builtin_qa, builtin_fc):
        assert build(seed=3) == build(seed=3)
        assert build(seed=3).edit != build(seed=4).edit


def test_questions_and_claims_hold_out_the_same_facts() -> None:
    asked = {said("question")[e.text] for e in qa().edit}
    claimed = {said("claim")[e.text] for e in fc().edit if e.answer == "SUPPORTS"}
    assert claimed < asked


def test_held_out_facts_are_not_trained() -> None:
    for build, form in ((qa, "question"), (fc, "claim")):
        split, known = build(), said(form)
        trained = {known[e.text] for e in (*split.train, *split.val) if e.text in known}
        tested = {known[e.text] for e in split.test if e.text in known}
        held = {known[e.text] for e in split.edit if e.text in known}
        assert trained == tested
        assert trained.isdisjoint(held)


def test_questions_have_their_facts_answers(split: Split) -> None:
    known = said("question")
    for e in (*split.train, *split.val, *split.test, *split.edit):
        if e.text in known:
            assert (e.answer, e.also) == (known[e.text].answer, known[e.text].also)


def test_a_claim_is_supported_exactly_if_it_is_true() -> None:
    split, true = fc(), said("claim")
    for e in (*split.train, *split.val, *split.test, *split.edit):
        assert (e.answer == "SUPPORTS") == (e.text in true), e
    for e in split.edit:
        assert all((r in true) == (e.answer == "SUPPORTS") for r in e.rephrasings), e


def test_claims_are_balanced() -> None:
    split = fc()
    for part in (split.train, split.test, split.edit):
        share = sum(e.answer == "SUPPORTS" for e in part) / len(part)
        assert abs(share - 0.5) < 0.01


def test_phrasings_of_training_test_and_rephrasing_never_meet() -> None:
    for forms in phrasings().values():
        for ways in forms.values():
            uses = [set(ways[use]) for use in ("train", "test", "rephrase")]
            assert sum(map(len, uses)) == len(set().union(*uses))


@cache
def said(form: str) -> dict[str, Fact]:
    """Every true sentence, or every question, with the fact it is about."""
    return {
        Item(fact, claimed, "").text(template): fact
        for fact in facts()
        for claimed in (fact.answer, *fact.also)
        for ways in phrasings()[fact.relation][form].values()
        for template in ways
    }
