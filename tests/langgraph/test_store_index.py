"""What a query finds: vectors where an index is configured, words where none is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchOp

from store_subjects import Do, Opened, Raises, Ruling, indexed

DOCS = ("docs",)
UNINDEXED = "what was never embedded isn't found by a query; memory adds it without a score"
STALE = "a vector must not outlive its text (langgraph#8214)"


async def test_the_nearest_comes_first_with_a_score(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    texts = {"fruit": "apple pear apple pear", "animal": "zebra ox", "number": "forty two"}
    await do.batch([PutOp(DOCS, key, {"text": text}) for key, text in texts.items()])
    for key, text in texts.items():
        found = await do.search(DOCS, query=text)
        scores = [item.score for item in found]
        assert found[0].key == key
        assert sorted(item.key for item in found) == sorted(texts)
        assert all(isinstance(score, float) for score in scores)
        assert all(left >= right for left, right in pairwise(score for score in scores if score is not None))


async def test_a_query_keeps_to_its_prefix_and_filter(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(("docs", "a"), "red", {"text": "apple", "colour": "red"})
    await do.put(("docs", "b"), "green", {"text": "apple", "colour": "green"})
    await do.put(("docsx",), "other", {"text": "apple", "colour": "red"})
    assert await do.key_set(DOCS, query="apple") == "green red"
    assert await do.key_set(("docs", "b"), query="apple") == "green"
    assert await do.key_set(DOCS, query="apple", filter={"colour": "red"}) == "red"
    assert await do.key_set(DOCS, query="apple", filter={"colour": {"$ne": "red"}}) == "green"
    assert await do.key_set((), query="apple") == "green other red"


async def test_an_empty_query_is_none(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(DOCS, "a", {"text": "apple"})
    await do.put(DOCS, "b", {"text": "zebra"}, index=False)
    assert await do.key_set(DOCS, query="") == "a b"
    assert [item.score for item in await do.search(DOCS, query="")] == [None, None]


async def test_an_update_is_found_by_its_new_text(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(DOCS, "k", {"text": "zebra"})
    await do.put(DOCS, "still", {"text": "zebra quartz"})
    assert await do.keys(DOCS, query="zebra") == ["k", "still"]
    await do.put(DOCS, "k", {"text": "apple melon"})
    assert await do.keys(DOCS, query="zebra quartz") == ["still", "k"]
    assert await do.keys(DOCS, query="apple melon") == ["k", "still"]


async def test_a_deleted_item_is_not_found(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(DOCS, "k", {"text": "zebra"})
    await do.put(DOCS, "rest", {"text": "apple"})
    await do.delete(DOCS, "k")
    assert await do.keys(DOCS, query="zebra") == ["rest"]
    await do.put(DOCS, "k", {"text": "quartz"}, index=False)
    ruling = Ruling(["rest"], memory=["rest", "k"], why=UNINDEXED)
    await ruling.check(do, lambda: do.keys(DOCS, query="zebra"))


async def test_index_false_means_not_found_by_a_query(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(DOCS, "a", {"text": "apple"})
    await do.put(DOCS, "hidden", {"text": "zebra"}, index=False)
    ruling = Ruling(["a"], memory=["a", "hidden"], why=UNINDEXED)
    await ruling.check(do, lambda: do.keys(DOCS, query="zebra"))
    assert await do.key_set(DOCS) == "a hidden"
    assert (await do.must_get(DOCS, "hidden")).value == {"text": "zebra"}


async def test_a_value_without_the_indexed_path_has_no_vector(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(DOCS, "a", {"text": "apple"})
    await do.put(DOCS, "pathless", {"title": "apple"})
    ruling = Ruling(["a"], memory=["a", "pathless"], why=UNINDEXED)
    await ruling.check(do, lambda: do.keys(DOCS, query="apple"))


async def test_index_false_over_an_embedded_key_drops_its_vector(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(DOCS, "k", {"text": "zebra"})
    await do.put(DOCS, "rest", {"text": "apple"})
    await do.put(DOCS, "k", {"text": "secret"}, index=False)
    ruling = Ruling(["rest"], memory=["k", "rest"], postgres=["k", "rest"], why=STALE)
    await ruling.check(do, lambda: do.keys(DOCS, query="zebra"))


async def test_a_dropped_field_drops_its_vector(opened: Opened) -> None:
    do = await opened(index=indexed("title", "text"))
    await do.put(DOCS, "k", {"title": "melon", "text": "zebra"})
    await do.put(DOCS, "k", {"title": "melon"})
    await do.put(DOCS, "twin", {"title": "melon"})
    await _alike(do, Ruling(True, memory=False, postgres=False, why=STALE))


async def test_a_shrunk_list_drops_its_vectors(opened: Opened) -> None:
    do = await opened(index=indexed("tags[*]"))
    await do.put(DOCS, "k", {"tags": ["melon", "zebra", "quartz"]})
    await do.put(DOCS, "k", {"tags": ["melon"]})
    await do.put(DOCS, "twin", {"tags": ["melon"]})
    await _alike(do, Ruling(True, memory=False, postgres=False, why=STALE))


async def _alike(do: Do, ruling: Ruling) -> None:
    """Whether the item scores like its twin, which never held anything else."""
    scores = {item.key: item.score for item in await do.search(DOCS, query="zebra")}
    assert sorted(scores) == ["k", "twin"]
    assert (scores["k"] == pytest.approx(scores["twin"])) is ruling.of(do)


async def test_equal_texts_in_one_batch(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    ruling = Ruling([None, None], memory=Raises(ValueError), why="memory counts distinct texts (langgraph#8822)")
    await ruling.check(do, lambda: do.batch([PutOp(DOCS, "a", {"text": "apple"}), PutOp(DOCS, "b", {"text": "apple"})]))
    found = Ruling("a b", memory="", why="as above: nothing was written")
    await found.check(do, lambda: do.key_set(DOCS, query="apple"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("text", {"text": "zebra", "noise": "mmmm"}),
        ("a.b", {"a": {"b": "zebra"}, "noise": "mmmm"}),
        ("list[0]", {"list": ["zebra", "mmmm"]}),
        ("list[-1]", {"list": ["mmmm", "zebra"]}),
        ("list[*].name", {"list": [{"name": "mmmm"}, {"name": "zebra"}]}),
        ("parts.*", {"parts": {"x": "mmmm", "y": "zebra"}}),
        ("{title,body.text}", {"title": "mmmm", "body": {"text": "zebra"}}),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
async def test_a_put_names_the_paths_to_index(opened: Opened, path: str, value: dict[str, Any]) -> None:
    do = await opened(index=indexed("unused"))
    await do.put(DOCS, "k", value, index=[path])
    await do.put(DOCS, "other", {"text": "mmmm"}, index=["text"])
    assert await do.keys(DOCS, query="zebra") == ["k", "other"]


async def test_paths_of_a_put_replace_the_configured_ones(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.put(DOCS, "k", {"text": "zebra", "title": "melon"}, index=["title"])
    await do.put(DOCS, "twin", {"text": "quartz", "title": "melon"}, index=["title"])
    found = await do.search(DOCS, query="zebra")
    assert {item.key for item in found} == {"k", "twin"}
    assert found[0].score == pytest.approx(found[1].score)


async def test_the_whole_value_is_indexed_by_default(opened: Opened) -> None:
    do = await opened(index=indexed())
    await do.put(DOCS, "k", {"anything": {"deep": ["zebra", "zebra"]}})
    await do.put(DOCS, "other", {"anything": {"deep": ["mmmm", "mmmm"]}})
    assert await do.keys(DOCS, query="zebra") == ["k", "other"]


async def test_many_vectors_make_one_result(opened: Opened) -> None:
    do = await opened(index=indexed("tags[*]"))
    await do.put(DOCS, "many", {"tags": ["zebra", "zebras", "a zebra"]})
    await do.put(DOCS, "one", {"tags": ["melon"]})
    assert await do.keys(DOCS, query="zebra") == ["many", "one"]


async def test_pages_of_a_query_are_whole(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    await do.batch([PutOp(DOCS, f"k{n:02}", {"text": f"apple {n}"}) for n in range(30)])
    pages = [await do.keys(DOCS, query="apple", limit=5, offset=at) for at in range(0, 35, 5)]
    ruling = Ruling(
        [5, 5, 5, 5, 5, 5, 0], postgres=[5, 5, 1, 0, 0, 0, 0], why="PostgresStore cuts its candidates before it looks at the offset"
    )
    assert [len(page) for page in pages] == ruling.of(do)
    everything = [key for page in pages for key in page]
    disjoint = Ruling(True, postgres=False, why="its candidates change with the limit where scores tie")
    assert (len(set(everything)) == len(everything)) is disjoint.of(do)


async def test_queries_of_one_batch_are_answered_each(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    texts = {"a": "apple", "b": "zebra", "c": "mmmm"}
    await do.batch([PutOp(DOCS, key, {"text": text}) for key, text in texts.items()])
    found: list[Any] = await do.batch([SearchOp(DOCS, query=text, limit=1) for text in [*texts.values(), "apple"]])
    assert [[item.key for item in items] for items in found] == [["a"], ["b"], ["c"], ["a"]]


async def test_any_script_can_be_searched(opened: Opened) -> None:
    do = await opened(index=indexed("text"))
    texts = {"zh": "这是中文", "ja": "これは日本語です", "ko": "이것은 한국어야", "ru": "это русский", "hi": "यह रूसी है", "emoji": "🍎🍐🦓"}
    await do.batch([PutOp(DOCS, key, {"text": text}) for key, text in texts.items()])
    for key, text in texts.items():
        assert (await do.keys(DOCS, query=text))[0] == key


# -- without an index


async def test_without_an_index_a_query_finds_words(do: Do) -> None:
    await do.put(DOCS, "tea", {"text": "likes green tea in the morning"})
    await do.put(DOCS, "coffee", {"text": "prefers coffee, strong coffee, more coffee"})
    await do.put(DOCS, "both", {"text": "drinks coffee or chocolate or juice or water or milk when no other drink is at hand"})
    why = "without vectors a query still means something: it searches the text; LangGraph's stores ignore it"
    ranked = Ruling(["coffee", "both"], memory=["tea", "coffee", "both"], postgres=["both", "coffee", "tea"], why=why)
    await ranked.check(do, lambda: do.keys(DOCS, query="coffee"))
    nothing = Ruling([], memory=["tea", "coffee", "both"], postgres=["both", "coffee", "tea"], why=why)
    await nothing.check(do, lambda: do.keys(DOCS, query="submarine"))
    scored = Ruling({float}, memory={type(None)}, postgres={type(None)}, why=why)
    assert {type(item.score) for item in await do.search(DOCS, query="coffee")} == scored.of(do)


async def test_words_are_found_at_any_depth_and_follow_updates(do: Do) -> None:
    await do.put(DOCS, "k", {"deep": [{"er": "submarine"}]})
    assert await do.keys(DOCS, query="submarine") == ["k"]
    await do.put(DOCS, "k", {"deep": [{"er": "bicycle"}]})
    gone = Ruling([], memory=["k"], postgres=["k"], why="a text index must not outlive its text; LangGraph's stores ignore the query")
    await gone.check(do, lambda: do.keys(DOCS, query="submarine"))
    assert await do.keys(DOCS, query="bicycle") == ["k"]


async def test_index_false_hides_from_words_too(do: Do) -> None:
    await do.put(DOCS, "hidden", {"text": "submarine"}, index=False)
    ruling = Ruling([], memory=["hidden"], postgres=["hidden"], why="index=False means found by neither vector nor word")
    await ruling.check(do, lambda: do.keys(DOCS, query="submarine"))
    assert await do.keys(DOCS) == ["hidden"]
    await do.put(DOCS, "hidden", {"text": "submarine"})
    assert await do.keys(DOCS, query="submarine") == ["hidden"]


async def test_words_keep_to_prefix_and_filter(do: Do) -> None:
    await do.put(("docs", "a"), "red", {"text": "submarine", "colour": "red"})
    await do.put(("docs", "b"), "green", {"text": "submarine", "colour": "green"})
    await do.put(("docsx",), "other", {"text": "submarine", "colour": "red"})
    assert await do.key_set(DOCS, query="submarine") == "green red"
    assert await do.keys(DOCS, query="submarine", filter={"colour": "red"}) == ["red"]
    assert len(await do.keys(DOCS, query="submarine", limit=1)) == 1
    assert len({*await do.keys(DOCS, query="submarine", limit=1), *await do.keys(DOCS, query="submarine", limit=1, offset=1)}) == 2
