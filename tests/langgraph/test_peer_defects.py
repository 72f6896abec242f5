"""Defects that LangGraph's stores have or had: ours shows none.

Where each is tried. Files are of this folder unless a folder is named; lg, lgr, lgjs and lm are the issues of langgraph, langgraph-redis,
langgraphjs and langmem. A missing issue means that no public report is known.

namespaces:
  prefix is a pattern, siblings meet        lg#8300 lgjs#2721              test_hostile_namespaces: no_two_namespaces_meet
  `*` and suffixes cross labels             lg#8478                        test_store_namespaces: a_listing_shows
  an empty prefix finds nothing             lgjs#2803 lgjs#2825            test_store_namespaces: an_empty_prefix_finds_everything
  a separator inside a label                lgjs#2512                      test_store_namespaces: our_separator_is_refused
  case, stop words, first ten only          lgr#30                         test_hostile_namespaces; here: a_label_may_be_any_word, many_gets
  a key that is a query                     lgr#196                        test_hostile_namespaces: any_key_round_trips
  None, numbers, e-mail, lists as labels    lg#6240 lg#5889 lm#7427        test_store_namespaces: a_bad_label…, a_list_is…; doors/test_open
  unchecked raw batches, unknown ops        -                              test_store_namespaces: …_in_a_raw_batch; test_store_behaviour
  reading makes a namespace                 lg#8734                        test_store_behaviour: a_namespace_lives_as_long_as_its_items
  the store doesn't know who asks           lgjs#920 aegra#246             test_callers_in_graphs, …_on_threads; doors/test_callers
values:
  NUL, NaN, surrogates, tuples, int keys    lg#1878                        test_store_values: what_json_cannot_hold_is_refused_by_its_path
  keys and labels too long for an index     -                              test_hostile_namespaces: a_key_has_a_limit, a_label_may_be_long
  live references, created_at reset         -                              test_store_behaviour: the_caller_owns…, update_keeps_created_at
  put(None), {}, max_depth undocumented     lg#8001                        test_store_behaviour; here: unlimited_and_too_little
filters:
  `$gt` compares text, or raises            lg#7684 lg#8365 lg#7880        test_store_filters: a_filter_finds, numbers_compare_as_numbers
  `$ne`, dots, objects, lists, `$and`       lg#8366 7795 8786 8759 8829    test_store_filters: a_filter_finds; engines/test_filters_sql
  SQL in a key                              CVE-2025-8709                  test_hostile_namespaces: a_hostile_filter_key_is_a_key
  the filter comes after the limit          -                              test_store_filters: a_filter_applies_before_the_limit
  negative limits                           lg#8696                        test_store_behaviour: negative_bounds_are_refused
pages and vectors:
  pages repeat, miss, or dry up             -                              test_store_behaviour, test_store_index: pages_…
  what has no vector is on every page       lg#8871                        here: what_has_no_vector_is_on_no_page_twice
  stale vectors, equal texts                lg#8214 lg#8822                test_store_index: …drops_its_vector(s), equal_texts_in_one_batch
  a connection is held while a model works  -                              test_peer_connections: a_model_at_work_holds_no_connection
  one bad operation fails its tick          -                              test_peer_connections: a_failing_model_…; test_store_behaviour
expiry:
  whole minutes; the dead seen and revived  lg#8354 lg#8902                test_store_ttl: a_read_keeps_alive, expired_is_gone…, a_refresh…
  refresh of one is refresh of all          lg#8806                        here: each_read_of_a_batch_refreshes_for_itself
  a search with refresh fails               lg#5178                        test_store_ttl: a_read_keeps_alive (async)
  a sweeper must be started                 -                              here: what_expired_is_swept_without_being_asked
locks and batches:
  deadlocks of crossing batches             -                              test_peer_connections: batches_that_…; engines/test_races
  reads take row locks                      -                              here: a_read_waits_for_no_writer
  more than 65,535 parameters               -                              test_store_behaviour: a_batch_has_no_size_limit; test_load
  a lock around the whole store             lg#7259                        test_peer_connections: slow_calls_of_one_store_overlap
  half a batch is kept                      lg#8590                        test_store_behaviour; engines/test_journal: a_failed_batch…
setup:
  at once from several, in transactions     lg#7630 lg#8010                test_load: eight_threads_open…; test_peer_connections: setup_…
  tables of an older version                lm#30                          test_peer_connections: tables_of_an_older_version_are_told_of
  the wrong object as a store               lm#48                          test_peer_connections: a_graph_given_the_wrong_object_says_so
connections and loops:
  dead for good once a backend is gone      lg#7304 lg#5675                test_peer_connections: a_lost_…; engines/test_connections
  one loop only; no sync call inside it     lg#6693                        engines/test_connections: one_navin_serves_one_loop_after…
  one connection shared by threads          lg#3193 lm#29                  engines/test_connections: threads_and_event_loops_share_one_cap
  two connections for a batch; used closed  lg#7218 lg#4214                test_peer_connections: a_model_at_…; engines/test_connections
  cancelled, timed out, ended               lg#5503 lg#6701 lg#6367        test_cancelled_calls
"""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp

from databases import Database
from store_subjects import Do, Opened, Raises, Ruling, Subject, eventually, indexed, timed
from watched import SQL, begun, behind, fate, meanwhile

DOCS = ("docs",)
#: On a database only.
stored = timed


@pytest.fixture
def database(subject: Subject, request: pytest.FixtureRequest) -> Database:
    return behind(subject, request)


# --- reads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["a", "the", "is", "OR", "not", "TO"])
async def test_a_label_may_be_any_word(do: Do, word: str) -> None:
    """Words that a text index leaves out made a namespace unreadable in RedisStore."""
    await do.put((word,), word, {"at": word})
    assert (await do.must_get((word,), word)).value == {"at": word}
    assert await do.keys((word,)) == [word]


async def test_many_gets_in_one_namespace_all_answer(do: Do) -> None:
    """langgraph-redis#30: a batch of gets stopped at ten."""
    await do.batch([PutOp(DOCS, f"k{n}", {"n": n}) for n in range(15)])
    found: list[Any] = await do.batch([GetOp(DOCS, f"k{n}") for n in range(15)])
    assert [item.value["n"] for item in found] == list(range(15))


async def test_unlimited_and_too_little(do: Do) -> None:
    await do.batch([PutOp(DOCS, f"k{n}", {"n": n}) for n in range(15)])
    unlimited = Ruling(15, memory=Raises(TypeError), why="None is no limit, as in PostgresStore")

    async def count() -> int:
        return len(await do.keys(DOCS, limit=None))

    await unlimited.check(do, count)
    depth = Ruling(
        Raises(ValueError, ("max_depth",)), memory=[()], postgres=Raises(AttributeError), why="a mistake is said; no namespace is empty"
    )
    await depth.check(do, lambda: do.list_namespaces(max_depth=0))


async def test_what_has_no_vector_is_on_no_page_twice(opened: Opened) -> None:
    """langgraph#8871: what was never embedded came again on every page."""
    do = await opened(index=indexed("text"))
    await do.batch([PutOp(DOCS, f"k{n}", {"text": f"apple {n}"}, index=False if n % 2 else None) for n in range(6)])
    pages = [await do.keys(DOCS, query="apple", limit=2, offset=at) for at in (0, 2, 4)]
    ruling = Ruling(0, memory=1, why="an item is on one page; memory adds what has no vector to the last ones again")
    seen = [key for page in pages for key in page]
    assert len(seen) - len(set(seen)) == ruling.of(do)


@stored
async def test_a_read_waits_for_no_writer(opened: Opened, database: Database) -> None:
    """A read that refreshes is an update in PostgresStore: it waits for whoever holds the row."""
    do = await opened()
    await do.put(DOCS, "read", {"text": "apple"}, ttl=60)
    database.rows(SQL["age"][do.name], ["read"])
    ruling = Ruling("answers", postgres="waits", why="to read is not to write: a row that somebody holds is refreshed another time")
    for verb, args in (("get", (DOCS, "read")), ("search", (DOCS,)), ("batch", ([GetOp(DOCS, "read"), GetOp(DOCS, "other")],))):
        with meanwhile(database, SQL["lock"][do.name], "read"):
            reading = begun(do, verb, *args)
            assert await fate(reading, database) == ruling.of(do)
        assert await reading


@stored
async def test_each_read_of_a_batch_refreshes_for_itself(opened: Opened, database: Database) -> None:
    """langgraph#8806: one flag stood for a whole namespace. RedisStore gave every item the default's life."""
    do = await opened(ttl={"default_ttl": 30})
    await do.put(DOCS, "own", {}, ttl=60)
    await do.put(DOCS, "default", {})
    await do.put(DOCS, "unread", {}, ttl=60)
    keys = ["own", "default", "unread"]
    database.rows(SQL["age"][do.name], keys)
    await do.batch([GetOp(DOCS, "own", True), GetOp(DOCS, "default", True), GetOp(DOCS, "unread", False)])
    left = {key: float(minutes) for key, minutes in database.rows(SQL["minutes"][do.name], keys)}
    assert left["unread"] < 6 < left["default"] < 40 < 59 < left["own"] < 70


@stored
async def test_what_expired_is_swept_without_being_asked(opened: Opened, database: Database) -> None:
    do = await opened(ttl={"sweep_interval_minutes": 0.001, "omit_expired": True})
    await do.put(DOCS, "swept", {"n": 1}, ttl=0.005)

    async def gone() -> bool:
        return await do.get(DOCS, "swept", refresh_ttl=False) is None

    await eventually(gone)
    if do.name == "navin":
        # Nothing but time.
        async def empty() -> bool:
            return bool(database.value(SQL["count"]["navin"], "swept") == 0)

        await eventually(empty)
    ruling = Ruling(0, postgres=1, why="open() starts the sweeper; LangGraph's must be started by hand, and LangGraph Server does not")
    assert database.value(SQL["count"][do.name], "swept") == ruling.of(do)
