"""Text to lexemes: what is found, what is folded, what hostile text can't do."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_navin.engines.builtin import lexemes as lexer
from langgraph_navin.engines.builtin.lexemes import counted, lexemes

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ,;!? ", []),
        ("The cat, the hat", ["the", "cat", "the", "hat"]),
        ("Élève préféré", ["eleve", "prefere"]),
        ("œuvre ŒUVRE Œuvre Straße STRASSE Łódź Ærø", ["oeuvre", "oeuvre", "oeuvre", "strasse", "strasse", "lodz", "aero"]),
        ("ὈΔΟΣ οδός", ["οδοσ", "οδοσ"]),
        ("İstanbul \u0131l\u0131k", ["istanbul", "ilik"]),
        ("l'eau l\u2019eau", ["l", "eau", "l", "eau"]),
        ("well-known aujourd'hui", ["well", "known", "aujourd", "hui"]),
        ("m\u00b2 \uff21\uff22", ["m2", "m", "2", "ab"]),
        ("co\u00adoperate", ["cooperate"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert lexemes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jean.dupont@acme-corp.fr", ["jean", "dupont", "acme", "corp", "fr", "=jean.dupont@acme-corp.fr"]),
        ("v1.2", ["v1", "v", "1", "2", "=v1.2"]),
        ("2026-11-30", ["2026", "11", "30", "=2026-11-30"]),
        ("see /memories/a.md.", ["see", "memories", "a", "md", "=memories/a.md"]),
        ("snake_case_id", ["snake", "case", "id", "=snake_case_id"]),
        ("https://a.b/c?x", ["https", "a", "b", "c", "=https://a.b/c", "x"]),
        ("ABC-123", ["abc", "123", "=abc-123"]),
        ("C++ f# AT&T", ["c", "=c++", "f", "=f#", "at", "t", "=at&t"]),
        ("std::string", ["std", "string", "=std::string"]),
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("HTTP2Server", ["http2server", "http", "2", "server"]),
        ("+336 __init__ page......12", ["336", "init", "page", "12"]),
        ("É.T", ["e", "t", "=e.t"]),
    ],
)
def test_a_compound_gives_its_parts_and_itself(text: str, expected: list[str]) -> None:
    assert lexemes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京都に住む", ["東京", "京都", "都に", "に住", "住む"]),
        ("京", ["京"]),
        ("한국어 인", ["한국", "국어", "인"]),
        ("ガーデン ｶﾞ", ["ガー", "ーデ", "デン", "ガ"]),
        ("ジョン・スミス", ["ジョ", "ョン", "スミ", "ミス"]),
        ("会議は3月", ["会議", "議は", "3", "月"]),
        ("ไทย", ["ไท", "ทย"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("العَرَبِيَّة", ["العربية"]),
    ],
)
def test_scripts_other_than_latin(text: str, expected: list[str]) -> None:
    assert lexemes(text) == [unicodedata.normalize("NFC", lexeme) for lexeme in expected]


def test_a_voicing_mark_makes_another_letter() -> None:
    assert lexemes("が") != lexemes("か")


def test_a_long_word_is_cut_alike_in_text_and_query() -> None:
    stem = "x" * lexer.MAX_LEXEME
    assert lexemes(stem + "text") == lexemes(stem + "query") == [stem]


def test_what_a_database_refuses_never_comes_out() -> None:
    assert lexemes("a\x00b \ud800c\udfff \x00") == ["a", "b", "c"]


def test_a_document_is_counted_over_its_texts() -> None:
    assert counted(["Red red", "blue", ""]) == (3, {"red": 2, "blue": 1})
    assert counted([]) == (0, {})


def test_counts_are_capped_at_what_an_index_holds() -> None:
    length, counts = counted(["a " * 20_000, "b"])
    assert (length, counts) == (lexer.MAX_LENGTH, {"a": lexer.MAX_COUNT, "b": 1})


HOSTILE = ["\x00", "\u0300\u0316", "\u0e48\u0e38", "क\u094d", *"a A aA a1 a. -. + a+ +a ' _ é 京 a----".split()]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hostile_million_characters_end(unit: str) -> None:
    found = lexemes((unit * MILLION)[:MILLION])
    assert len(found) <= 2 * MILLION
    assert all(0 < len(lexeme) <= lexer.MAX_LEXEME for lexeme in found)


@given(st.text(st.characters() | st.sampled_from("aB1._-:/@#+&' éœ\u0301\u094d京が한\x00")))
def test_every_lexeme_can_be_stored(text: str) -> None:
    for lexeme in lexemes(text):
        assert 0 < len(lexeme) <= lexer.MAX_LEXEME
        assert "\x00" not in lexeme
        assert lexeme.encode("utf-8").decode() == lexeme


@given(st.text("aBcÉéœÜñ1 .-_'京가が"))
def test_the_form_of_composition_makes_no_difference(text: str) -> None:
    for composed in (unicodedata.normalize("NFC", text), unicodedata.normalize("NFKD", text)):
        assert lexemes(composed) == lexemes(text)


@given(st.text("abéœüßñ1 .-_'@"))
def test_case_and_accents_make_no_difference(text: str) -> None:
    bare = text.replace("é", "e").replace("œ", "oe").replace("ü", "u").replace("ß", "ss").replace("ñ", "n")
    assert lexemes(text) == lexemes(text.upper()) == lexemes(bare)


@given(st.lists(st.text("abC1.é京 ")))
def test_counting_agrees_with_the_list(texts: list[str]) -> None:
    length, counts = counted(texts)
    assert length == sum(counts.values()) == sum(len(lexemes(text)) for text in texts)
