"""The fakes that the package ships: they hold still what a test wants to hold still."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import cast

import pytest

from langgraph_navin.drive import arun, run
from langgraph_navin.effects import Steps, dispatch, embed
from langgraph_navin.errors import EngineUnavailable
from langgraph_navin.testing import DictionaryEngine, FakeEmbeddings, FixedClock, RecordingSession
from langgraph_navin.testing.bench import Bench, Perform


def plan() -> Steps[list[list[list[float]]]]:
    return [(yield from embed(["a"])), (yield from embed(["b"], query=True))]


def test_a_recording_session_answers_from_its_script_in_both_colours() -> None:
    blocking, awaiting = RecordingSession([[[1.0]], [[2.0]]]), RecordingSession([[[1.0]], [[2.0]]])
    assert run(plan(), blocking) == asyncio.run(arun(plan(), awaiting.awaiting)) == [[[1.0]], [[2.0]]]
    assert [effect.texts for effect in blocking.asked] == [("a",), ("b",)]
    assert blocking.asked == awaiting.asked


def test_a_scripted_error_is_raised_and_an_empty_script_fails() -> None:
    with pytest.raises(EngineUnavailable, match="away"):
        run(plan(), RecordingSession([[[1.0]], EngineUnavailable("away")]))
    with pytest.raises(AssertionError, match="no answer left"):
        run(plan(), RecordingSession([[[1.0]]]))


def test_fake_vectors_are_near_where_texts_share_words() -> None:
    model = FakeEmbeddings(32)
    tea, green, other = model.embed_documents(["green tea", "green apples", "pineapple"])
    near, far = (sum(map(float.__mul__, tea, vector)) for vector in (green, other))
    assert near > far
    assert sum(x * x for x in tea) == pytest.approx(1.0)
    assert model.embed_query("green tea") == tea
    assert len(model.embed_query("")) == 32


def test_fake_vectors_are_the_same_in_every_process() -> None:
    program = "from langgraph_navin.testing import FakeEmbeddings; print(FakeEmbeddings(8).embed_query('green tea'))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.strip() == str(FakeEmbeddings(8).embed_query("green tea"))


def test_a_fixed_clock_moves_by_its_step_and_when_told() -> None:
    clock = FixedClock(step=timedelta(0))
    first = clock()
    assert clock() == first
    clock.advance(1.5)
    assert clock() - first == timedelta(seconds=1.5)


def test_a_fixed_clock_ends_lives_in_the_dictionary_engine() -> None:
    clock = FixedClock()
    engine = DictionaryEngine(clock)
    bench = Bench(engine, cast(Perform, lambda plan: run(dispatch(engine, plan))))
    bench.remember(ttl=60.0)
    clock.advance(59)
    assert bench.get(refresh=True) is not None
    clock.advance(65)
    assert bench.get() is not None
    clock.advance(2)
    assert bench.get() is None


def test_the_fakes_need_no_pytest() -> None:
    program = "import sys, langgraph_navin.testing; print('pytest' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.strip() == "False"
