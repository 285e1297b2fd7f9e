import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.detokenise import detokenise, tokenise

# Natural, and the same in the style of the spaced corpora.
BOTH = [
    ("I don't know.", "I don ' t know ."),
    ("well, i'm fine.", "well , i ' m fine ."),
    ('"Hello", she said.', '" Hello " , she said .'),
    ('"Hello," she said.', '" Hello , " she said .'),
    ('He wrote "now" and "then".', 'He wrote " now " and " then " .'),
    ('("Never!")', '( " Never ! " )'),
    ('"(Never.)"', '" ( Never . ) "'),
    ("Give it 3.5% more.", "Give it 3.5 % more ."),
    ("Is it 5:30 already?", "Is it 5:30 already ?"),
    ("He'll say they've gone; she'd agree.", "He ' ll say they ' ve gone ; she ' d agree ."),
    ("José's car is at the café's door.", "José ' s car is at the café ' s door ."),
    ("Beyoncé'll come.", "Beyoncé ' ll come ."),
    ("Où? C'était là.", "Où ? C ' était là ."),
    ("Ten o'clock, ma'am?", "Ten o ' clock , ma ' am ?"),
    ("It is a two minutes' ride.", "It is a two minutes ' ride ."),
    ("The word 'maybe' is banned.", "The word ' maybe ' is banned ."),
    ("It's 'fine' as 'art' goes.", "It ' s ' fine ' as ' art ' goes ."),
    ("The dogs' owner said 'no'.", "The dogs ' owner said ' no ' ."),
    ("So... what now?!", "So ... what now ? !"),
    ("My well-known aunt - the tall one - agrees.", "My well-known aunt - the tall one - agrees ."),
    ("Mr. Bell came at 5 p.m. from the U.S.", "Mr . Bell came at 5 p.m . from the U.S ."),
    ("Two things: tea, etc., and rest.", "Two things : tea , etc . , and rest ."),
]
NATURAL = [
    "Pi is 3.14159, or 22/7; version 2.0.1 says so.",
    "See https://example.org/Some.Page?Query=1.Then or www.Example.com.",
    "Write to Jo.Bloggs@example.com!",
    "Wait... no, e.g. 10,000 of them, i.e. all.",
    "A Ph.D. from the U.S.A. and a B.Sc. from the U.K.",
    "rock 'n' roll, 'tis said, is the workers' choice",
    'A 6" nail and a 9" one.',
    "She runs .NET on it :) and I use C++ :(",
    "Typographic “quotes” and it\u2019s so",
    "Call 555-0101 between 9:00-17:30 (or later).",
    "book(s), $40,000, 7% and £3.50",
    "",
]
SPACED_ONLY = [
    ("It ' s 5 : 30 , isn ' t it ?", "It's 5:30, isn't it?"),
    ("3 . 5 %", "3.5%"),
    ("can't .What", "can't. What"),
    ("That was far.Can we rest?I must .", "That was far. Can we rest? I must."),
    ("It is OK.Let us go", "It is OK. Let us go"),
    ("It \u2019 s the cats \u2019 “ house ” .", "It's the cats' \"house\"."),
    ("I 'd go but we do n't .", "I'd go but we don't."),
    ("The É . U . and José 's café n't ?", "The É.U. and José's cafén't?"),
    ("at 5 p . m . in the U . S . A . today", "at 5 p.m. in the U.S.A. today"),
    ("Hm . . . no ! !", "Hm... no!!"),
    ("So am I . A pity .", "So am I. A pity."),
    ("  two \n lines ", "two lines"),
]
MARKS = st.sampled_from([".", "?", "!", "...", "?!"])
# fmt: off
WORDS = st.sampled_from([
    "the", "a", "cat", "Anna", "I", "don't", "she'll", "we're", "it's", "o'clock", "well-known",
    "7", "3.5", "5:30", "10%", "$20", "Mr.", "etc.", '"quite"', '"so-so,"', "(perhaps)", "and,",
    "then;", "namely:", "p.m.", "boys'", "ran", "José's", "Ørsted'll", "o'été",
])
# fmt: on
SENTENCES = st.builds(
    lambda words, mark: " ".join(words) + mark, st.lists(WORDS, min_size=1), MARKS
)
# fmt: off
PIECES = st.sampled_from([
    "'", '"', ".", ",", ":", ";", "?", "!", "(", ")", "$", "%", "\u2019", "“", "s", "t", "n't",
    "ll", "I", "A", "é", "Ñ", "a", "Bc", "de", "5", "www.", "@", "/", "…", " ", " ", " ",
])
# fmt: on


@pytest.mark.parametrize(("natural", "spaced"), BOTH)
def test_each_style_turns_into_the_other(natural: str, spaced: str) -> None:
    assert detokenise(spaced) == natural
    assert tokenise(natural) == spaced


@pytest.mark.parametrize(("spaced", "natural"), SPACED_ONLY)
def test_detokenise_mends_what_corpora_hold_besides(spaced: str, natural: str) -> None:
    assert detokenise(spaced) == natural


@pytest.mark.parametrize(
    "text", [natural for natural, _ in BOTH] + [*NATURAL, "Press the 's' key."]
)
def test_detokenise_leaves_natural_text_alone(text: str) -> None:
    assert detokenise(text) == text


@pytest.mark.parametrize("text", NATURAL)
def test_natural_text_comes_back_from_the_spaced_style(text: str) -> None:
    assert detokenise(tokenise(text)) == text


@given(SENTENCES)
def test_composed_sentences_come_back_from_the_spaced_style(sentence: str) -> None:
    assert detokenise(tokenise(sentence)) == sentence


@given(st.one_of(st.text(), st.lists(PIECES, max_size=20).map("".join)))
def test_detokenise_is_idempotent(text: str) -> None:
    once = detokenise(text)
    assert detokenise(once) == once


@given(st.lists(PIECES).map("".join))
def test_both_change_nothing_but_spaces_and_the_shape_of_quotation_marks(text: str) -> None:
    straight = str.maketrans({"\u2019": "'", "“": '"', " ": None})
    for change in (detokenise, tokenise):
        assert change(text).translate(straight) == text.translate(straight)


@pytest.mark.parametrize("unit", ["' ", "s ' a' ", "a . ", "( ", ".", ".,"])
def test_pathological_text_is_not_slow(unit: str) -> None:
    text = unit * 20_000 + "a"
    once = detokenise(text)
    assert detokenise(once) == once
    tokenise(text)
