"""Namespaces and partitions: nothing is lost, no two ever meet, and a prefix reaches all that lies below it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_navin.errors import InvalidNamespace, InvalidRequest
from langgraph_navin.scopes import (
    KEY_LIMIT,
    MODE_OF,
    MODES,
    NAMESPACE_HEAD,
    NAMESPACE_LIMIT,
    NOBODY,
    PARTITION_LIMIT,
    SCOPES,
    UNIT,
    Labels,
    NamespaceMap,
    Partition,
    Reach,
    Rule,
    Scope,
    check_id,
    check_key,
    check_labels,
    check_namespace,
    head,
    indexed,
    joined,
    rules,
    scope_of,
    split,
)

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters=".\x00\x1f")
SHORT = st.text(LETTERS, min_size=1, max_size=8)
#: Labels whose bytes end around the limits, one to four bytes a character.
LONG = st.builds(lambda text, length: (text * length)[:length], st.text(LETTERS, min_size=1, max_size=3), st.integers(150, NAMESPACE_LIMIT))
NAMESPACES = st.lists(st.one_of(SHORT, LONG), min_size=1, max_size=5).map(tuple)


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Labels, Labels]:
    """Two namespaces that are easily taken for one another."""
    one = draw(NAMESPACES)
    text = joined(one)
    at = draw(st.integers(0, len(text) - 1))
    changed = draw(
        st.sampled_from(
            [text[:at] + text[at + 1 :], text[:at] + UNIT + text[at:], text[:at] + "z" + text[at:], text[:at] + "z" + text[at + 1 :]]
        )
    )
    other = tuple(label for label in changed.split(UNIT) if label)
    return one, other or ("z",)


# --- one text ---------------------------------------------------------------------------------------------------


@given(NAMESPACES)
def test_joining_loses_nothing(labels: Labels) -> None:
    assert split(joined(labels)) == labels


def test_no_labels_are_no_text() -> None:
    assert joined(()) == ""
    assert split("") == ()


@given(neighbours())
def test_two_namespaces_never_share_a_place(pair: tuple[Labels, Labels]) -> None:
    one, other = pair
    assert (joined(one) == joined(other)) is (one == other)
    assert (indexed(joined(one)) == indexed(joined(other))) is (one == other)


@given(neighbours(), st.sampled_from(SCOPES))
def test_two_namespaces_never_share_partition_and_place(pair: tuple[Labels, Labels], default: Scope) -> None:
    places = {(NamespaceMap().partition(ns, tenant="t", default=default).text, indexed(joined(ns))) for ns in pair}
    assert len(places) == len(set(pair))


@given(neighbours(), st.integers(0, 5))
def test_a_prefix_of_labels_is_a_prefix_of_the_text_and_nothing_else_is(pair: tuple[Labels, Labels], length: int) -> None:
    labels, other = pair
    for prefix in (labels[:length], other[:length]):
        assert joined(labels).startswith(joined(prefix)) is (labels[: len(prefix)] == prefix)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)),
        (("foo",), ("foobar",)),
        (("é",), ("e\u0301",)),
        (("A",), ("a",)),
        (("a_b",), ("aXb",)),
        (("a", "*"), ("a", "x")),
    ],
    ids=str,
)
def test_known_traps_stay_apart(one: Labels, other: Labels) -> None:
    assert indexed(joined(one)) != indexed(joined(other))
    assert not joined(other).startswith(joined(one))


# --- the form that stands in keys -------------------------------------------------------------------------------


@given(NAMESPACES)
def test_the_indexed_form_is_short(labels: Labels) -> None:
    short = indexed(joined(labels))
    assert len(short.encode()) <= NAMESPACE_LIMIT
    assert short.endswith(UNIT) is (short == joined(labels))


@given(NAMESPACES, st.integers(1, 5))
def test_the_indexed_form_starts_as_its_prefixes_do(labels: Labels, length: int) -> None:
    # What a read by prefix relies on: the range of the index that it walks holds every namespace below the prefix.
    whole = joined(labels[:length])
    start = whole if len(whole.encode()) <= NAMESPACE_HEAD else head(whole)
    assert indexed(joined(labels)).startswith(start)


@pytest.mark.parametrize("letter", ["a", "é", "語", "😀"])
def test_a_long_namespace_is_cut_between_characters(letter: str) -> None:
    for extra in range(8):
        text = joined(("x" * extra + letter * 500, "end"))
        short = indexed(text)
        if short != text:
            start, digest = short[:-64], short[-64:]
            assert text.startswith(start)
            assert NAMESPACE_HEAD <= len(start.encode()) <= NAMESPACE_HEAD + 3
            assert set(digest) <= set("0123456789abcdef")
    assert indexed(joined((letter * 901,))) != joined((letter * 901,))


@pytest.mark.parametrize("letter", ["a", "é", "語", "😀"])
def test_the_limit_is_in_bytes_and_the_last_byte_still_fits(letter: str) -> None:
    size = len(letter.encode())
    count = (NAMESPACE_LIMIT - 1) // size
    fits = joined(("x" * (NAMESPACE_LIMIT - 1 - count * size) + letter * count,))
    assert len(fits.encode()) == NAMESPACE_LIMIT
    assert indexed(fits) == fits
    assert indexed("x" + fits) != "x" + fits


@given(st.text(LETTERS), st.integers(0, 20))
def test_a_head_is_valid_text_within_its_bytes(text: str, limit: int) -> None:
    cut = head(text, limit)
    assert text.startswith(cut)
    assert len(cut.encode()) <= limit
    assert cut == text or len((cut + text[len(cut)]).encode()) > limit


# --- partitions -------------------------------------------------------------------------------------------------

IDS = st.one_of(SHORT, st.text(LETTERS, min_size=1, max_size=3).map(lambda text: (text * 500)[:500]))


@given(st.sampled_from(SCOPES), IDS, st.sampled_from(SCOPES), IDS)
def test_two_partitions_never_share_a_text(scope: Scope, one: str, other_scope: Scope, other: str) -> None:
    left, right = Partition(scope, one), Partition(other_scope, other)
    assert (left.text == right.text) is (left == right)
    assert scope_of(left.text) == scope
    assert len(left.text.encode()) <= PARTITION_LIMIT + 20


@pytest.mark.parametrize("member", ["#", ":", "x#y", "#" + "0" * 64, "user:x"])
def test_an_id_that_looks_like_a_stored_form_stays_itself(member: str) -> None:
    partition = Partition("user", member)
    assert partition.text == f"user:{member}"
    assert scope_of(partition.text) == "user"


def test_an_id_of_many_bytes_is_kept_by_its_hash() -> None:
    for letter in ("a", "語"):
        long = Partition("shared_agents", letter * PARTITION_LIMIT + "1")
        other = Partition("shared_agents", letter * PARTITION_LIMIT + "2")
        assert long.text.startswith("shared_agents#")
        assert long.text != other.text
        assert scope_of(long.text) == "shared_agents"


@pytest.mark.parametrize("bad", ["", "a\x1fb", "a\x00b", "\ud800", None, 7], ids=repr)
def test_an_id_that_cannot_be_is_refused(bad: Any) -> None:
    for attempt in (lambda: Partition("user", bad), lambda: check_id("user_id", bad)):
        with pytest.raises(InvalidRequest):
            attempt()


def test_every_scope_has_a_mode() -> None:
    assert set(MODE_OF) == set(SCOPES)
    assert set(MODE_OF.values()) <= set(MODES)


# --- what a label and a key may be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "where"),
    [
        ("user", "namespace"),
        (None, "namespace"),
        ({"a"}, "namespace"),
        (("a", ""), "namespace[1]"),
        (("a", 7), "namespace[1]"),
        (("a.b",), "namespace[0]"),
        (("a", "b\x00"), "namespace[1]"),
        (("a\x1fb",), "namespace[0]"),
        (("a", "b", "\udfff"), "namespace[2]"),
    ],
    ids=repr,
)
def test_a_bad_label_is_refused_by_its_place(labels: Any, where: str) -> None:
    for check in (check_labels, check_namespace):
        with pytest.raises(InvalidNamespace) as refused:
            check(labels)
        assert refused.value.details["field"] == where
        assert str(refused.value).startswith(where)


def test_an_items_own_namespace_has_a_label_and_not_langgraphs() -> None:
    assert check_labels(()) == ()
    assert check_labels(("langgraph",)) == ("langgraph",)
    for bad in ((), ("langgraph",), ("langgraph", "x")):
        with pytest.raises(InvalidNamespace):
            check_namespace(bad)
    assert check_namespace(["x", "langgraph"]) == ("x", "langgraph")


def test_dots_are_labels_only_where_asked_for() -> None:
    assert check_namespace(("ada@example.org",), dots=True) == ("ada@example.org",)


@pytest.mark.parametrize("letter", ["a", "é", "語", "😀"])
def test_a_key_is_limited_in_bytes(letter: str) -> None:
    count = KEY_LIMIT // len(letter.encode())
    key = letter * count + "x" * (KEY_LIMIT - count * len(letter.encode()))
    assert check_key(key) == key
    with pytest.raises(InvalidRequest, match=str(KEY_LIMIT)) as refused:
        check_key(key + "x")
    assert letter * 20 not in str(refused.value)


@pytest.mark.parametrize("bad", [None, 7, b"k", "a\x00", "\ud8ff"], ids=repr)
def test_a_key_that_cannot_be_kept_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidRequest, match="key"):
        check_key(bad)


@pytest.mark.parametrize("key", ["", " ", "my-doc.md#0", "../x", "%", "a\x1fb", "ключ"])
def test_any_other_key_is_kept(key: str) -> None:
    assert check_key(key) == key


# --- rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "member"),
    [
        (("memories", "u-1"), "u-1"),
        (("memories", "u-1", "likes"), "u-1"),
        (("memories",), None),
        (("Memories", "u-1"), None),
        (("notes", "u-1"), None),
        ((), None),
        (("memories", "{user_id}"), "{user_id}"),
    ],
    ids=str,
)
def test_a_rule_names_its_member(labels: Labels, member: str | None) -> None:
    assert Rule(("memories", "{user_id}"), "user").member(labels) == member


def test_a_rule_may_name_its_member_anywhere() -> None:
    rule = Rule(("{user_id}", "memories"), "user")
    assert rule.member(("u-1", "memories", "x")) == "u-1"
    assert rule.member(("u-1", "notes")) is None


@pytest.mark.parametrize("pattern", [(), ("memories",), ("{a}", "{b}")], ids=str)
def test_a_rule_has_exactly_one_member(pattern: Labels) -> None:
    with pytest.raises(InvalidRequest, match="exactly one"):
        Rule(pattern, "user")


def test_a_rule_names_a_scope() -> None:
    with pytest.raises(InvalidRequest, match="organization"):
        rules([(("memories", "{id}"), "users")])


def test_the_first_rule_that_fits_wins_and_scopes_come_before_rules() -> None:
    known = NamespaceMap(rules([(("m", "{id}"), "agent"), (("m", "{id}"), "user"), (("user", "{id}"), "team")]))
    assert known.partition(("m", "x"), tenant="t", default="user") == Partition("agent", "x")
    assert known.partition(("user", "x"), tenant="t", default="user") == Partition("user", "x")


@pytest.mark.parametrize(
    ("labels", "partition"),
    [
        (("user", "u-42", "likes"), Partition("user", "u-42")),
        (("session", "s"), Partition("session", "s")),
        (("organization",), Partition("organization", "acme")),
        (("organization", "another"), Partition("organization", "acme")),
        (("global", "x"), Partition("global", NOBODY)),
        (("user",), Partition("agent", NOBODY)),
        (("User", "u"), Partition("agent", NOBODY)),
        (("anything", "user", "u"), Partition("agent", NOBODY)),
    ],
    ids=str,
)
def test_the_first_label_picks_the_scope(labels: Labels, partition: Partition) -> None:
    assert NamespaceMap().partition(labels, tenant="acme", default="agent") == partition


# --- reach ------------------------------------------------------------------------------------------------------

FEW = st.sampled_from(["user", "team", "organization", "global", "memories", "a", "b"])
PATTERNS = st.tuples(st.lists(FEW, max_size=3), st.integers(0, 3)).map(lambda p: (*p[0][: p[1]], "{id}", *p[0][p[1] :]))
MAPS = st.lists(st.tuples(PATTERNS, st.sampled_from(SCOPES)), max_size=3).map(lambda pairs: NamespaceMap(rules(pairs)))


@given(MAPS, st.lists(FEW, min_size=1, max_size=5).map(tuple), st.integers(0, 5), st.sampled_from(SCOPES))
def test_a_prefix_reaches_every_namespace_below_it(known: NamespaceMap, labels: Labels, length: int, default: Scope) -> None:
    lives = known.partition(labels, tenant="acme", default=default)
    reach = known.reach(labels[:length], tenant="acme", default=default)
    assert lives in reach.partitions or lives.scope in reach.scopes


@given(MAPS, st.sampled_from(SCOPES), st.text(LETTERS, min_size=1, max_size=4), st.sampled_from(SCOPES))
def test_a_named_member_is_all_that_is_reached(known: NamespaceMap, scope: Scope, member: str, default: Scope) -> None:
    # Otherwise a foreign namespace would be narrowed to nothing instead of being refused.
    reach = known.reach((scope, member), tenant="acme", default=default)
    assert reach == Reach((known.partition((scope, member), tenant="acme", default=default),))


def test_the_empty_prefix_reaches_every_scope() -> None:
    assert NamespaceMap().reach((), tenant="acme", default="user") == Reach((), SCOPES)


def test_an_unmapped_prefix_reaches_one_partition() -> None:
    known = NamespaceMap(rules([(("memories", "{id}"), "user")]))
    assert known.reach(("notes",), tenant="acme", default="agent") == Reach((Partition("agent", NOBODY),))
    assert known.reach(("memories",), tenant="acme", default="agent").scopes == ("user",)
    assert known.reach(("memories", "u"), tenant="acme", default="agent") == Reach((Partition("user", "u"),))
