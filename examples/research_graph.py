"""A research graph that waits for a person before it publishes: plan → gather → draft → publish.

`draft` applies a preference that the user stated in an earlier thread. `publish` runs only on a decision,
puts the report into the outbox once, and archives it in memory. The state holds a dataclass and two pydantic
models; they are defined here, not in a script, so that every process knows them by the same name.
"""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import interrupt
from pydantic import AwareDatetime, BaseModel

from langgraph_navin import Navin

#: How the graph stops before `publish`: inside the node, or at a breakpoint before it.
Style = Literal["interrupt", "before"]

DEFAULT_PREFERENCE = "balanced"

#: What this offline example can look up. The figures are invented.
LIBRARY = {
    "inflation": "prices rose 2.1 % over the last year",
    "interest rates": "ten-year government bonds yield 3.0 %",
    "equities": "the broad index trades at 19 times earnings",
}

ADVICE = {
    "cautious": "keep four fifths in short government bonds",
    "balanced": "split evenly between bonds and shares",
    "bold": "put four fifths in shares",
}


# --- what the state holds ---


@dataclass(frozen=True)
class Finding:
    """One thing that was looked up."""

    topic: str
    text: str


class Approval(BaseModel):
    """A decision about publishing: which, whose, and when."""

    approved: bool
    by: str
    at: AwareDatetime

    def __str__(self) -> str:
        return f"{'approved' if self.approved else 'rejected'} by {self.by} at {self.at:%Y-%m-%d %H:%M:%S %Z}"


class Report(BaseModel):
    """A published report, with the approval it went out under."""

    id: str
    text: str
    approval: Approval


class State(TypedDict, total=False):
    user_id: str
    question: str
    plan: list[str]
    findings: list[Finding]
    preference: str
    draft: str
    approval: Approval
    report: Report


class Profile(TypedDict):
    user_id: str
    preference: str


# --- where reports go out ---


class Outbox:
    """A folder that takes each report once. It stands for any outside system that takes an idempotency key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, report_id: str) -> Report | None:
        """The report of this id if it is out."""
        path = self._path(report_id)
        return Report.model_validate_json(path.read_text()) if path.exists() else None

    def deliver(self, report: Report) -> Report:
        """Send a report unless one with its id is out already. Returns the one that is out."""
        with tempfile.NamedTemporaryFile("w", dir=self.folder, prefix=".") as whole:
            whole.write(report.model_dump_json())
            whole.flush()
            os.fsync(whole.fileno())
            # A link appears whole or not at all, and never replaces: of two senders, one wins.
            with suppress(FileExistsError):
                os.link(whole.name, self._path(report.id))
        return Report.model_validate_json(self._path(report.id).read_text())

    def sent(self) -> list[Report]:
        """Every report that is out."""
        return [Report.model_validate_json(path.read_text()) for path in sorted(self.folder.glob("[!.]*.json"))]

    def _path(self, report_id: str) -> Path:
        return self.folder / f"{report_id}.json"


def report_id(thread_id: str) -> str:
    """One id for every attempt to publish a thread's report; safe as a file name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, thread_id))


# --- who writes ---


class ScriptedAnalyst(BaseChatModel):
    """A chat model without a network: plans and drafts from what the prompt says, always the same way."""

    @property
    def _llm_type(self) -> str:
        return "scripted-analyst"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        prompt = messages[-1].text
        answer = scripted_draft(prompt) if prompt.startswith("Draft") else scripted_plan(prompt)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


def scripted_plan(prompt: str) -> str:
    return "\n".join(topic for topic in LIBRARY if topic in prompt)


def scripted_draft(prompt: str) -> str:
    stated = re.search(r"^Risk preference: (.+)$", prompt, re.MULTILINE)
    preference = stated[1] if stated else "unknown"
    advice = ADVICE.get(preference, "weigh every step against that preference")
    topics = ", ".join(re.findall(r"^- (.+?):", prompt, re.MULTILINE))
    return f"For a {preference} investor: {advice}. Based on {topics}."


def chat_model() -> BaseChatModel:
    """The scripted model, or the one that `NAVIN_MODEL=provider:name` names.

    Raises:
        RuntimeError: `NAVIN_MODEL` is set, and langchain or the provider's package isn't installed.
    """
    name = os.environ.get("NAVIN_MODEL")
    if not name:
        return ScriptedAnalyst()
    try:
        from langchain.chat_models import init_chat_model

        model: BaseChatModel = init_chat_model(name)
    except ImportError as error:
        raise RuntimeError(f"NAVIN_MODEL={name} needs `pip install langchain` and the provider's package") from error
    return model


# --- the graph ---

Graph = CompiledStateGraph[State, None, State, State]
Search = Callable[[str], Finding]


def on_thread(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def preferences(user_id: str) -> tuple[str, ...]:
    return ("user", user_id, "preferences")


def reports(user_id: str) -> tuple[str, ...]:
    return ("user", user_id, "reports")


def memory(runtime: Runtime) -> BaseStore:
    assert runtime.store is not None, "compile the graph with store=navin.store"
    return runtime.store


def thread(runtime: Runtime) -> str:
    thread_id = runtime.execution_info.thread_id if runtime.execution_info else None
    assert thread_id is not None, "run the graph on a thread"
    return thread_id


def search_library(topic: str) -> Finding:
    return Finding(topic, LIBRARY[topic])


class Research:
    """The four nodes, and what they work with."""

    def __init__(self, outbox: Outbox, model: BaseChatModel, search: Search) -> None:
        self.outbox, self.model, self.search = outbox, model, search

    def plan(self, state: State) -> State:
        prompt = f"Plan: which of these topics help ({', '.join(LIBRARY)})? One per line.\nQuestion: {state['question']}"
        answer = self.model.invoke(prompt).text.lower()
        return {"plan": [topic for topic in LIBRARY if topic in answer]}

    def gather(self, state: State) -> State:
        return {"findings": [self.search(topic) for topic in state["plan"]]}

    def draft(self, state: State, runtime: Runtime) -> State:
        """Write the report for the risk preference that the user's memory holds."""
        known = memory(runtime).get(preferences(state["user_id"]), "risk")
        preference = str(known.value["text"]) if known else DEFAULT_PREFERENCE
        notes = "\n".join(f"- {finding.topic}: {finding.text}" for finding in state["findings"])
        prompt = f"Draft an answer in two sentences.\nQuestion: {state['question']}\nRisk preference: {preference}\nFindings:\n{notes}"
        return {"preference": preference, "draft": self.model.invoke(prompt).text}

    def publish(self, state: State, runtime: Runtime) -> State:
        """Publish what was approved. However often this runs, the report goes out once.

        What is out stays out: if an approver died after the report went out and before the state was saved,
        a later decision, even a rejection, only completes the archive and the state with the first one.
        """
        # A run that slips past the breakpoint of style "before" has no decision in its state, and so asks here.
        approval = state.get("approval") or Approval.model_validate(interrupt({"publish?": state["draft"]}))
        identity = report_id(thread(runtime))
        report = self.outbox.find(identity)
        if report is None and not approval.approved:
            return {"approval": approval}
        report = report or self.outbox.deliver(Report(id=identity, text=state["draft"], approval=approval))
        memory(runtime).put(reports(state["user_id"]), report.id, report.model_dump(mode="json"))
        return {"approval": report.approval, "report": report}


def build(navin: Navin, outbox: Outbox, style: Style, *, model: BaseChatModel | None = None, search: Search = search_library) -> Graph:
    """The research graph on a memory."""
    nodes = Research(outbox, model or chat_model(), search)
    builder = StateGraph(State)
    builder.add_node("plan", nodes.plan).add_node("gather", nodes.gather).add_node("draft", nodes.draft).add_node("publish", nodes.publish)
    builder.add_edge(START, "plan").add_edge("plan", "gather").add_edge("gather", "draft").add_edge("draft", "publish")
    builder.add_edge("publish", END)
    stops = ["publish"] if style == "before" else None
    return builder.compile(store=navin.store, checkpointer=navin.checkpointer, interrupt_before=stops)


def tell_preference(navin: Navin, user_id: str, preference: str) -> None:
    """The earlier thread: a graph of its own that remembers what the user says about risk."""

    def remember(state: Profile, runtime: Runtime) -> None:
        memory(runtime).put(preferences(state["user_id"]), "risk", {"text": state["preference"]})

    builder = StateGraph(Profile).add_node("remember", remember).add_edge(START, "remember").add_edge("remember", END)
    graph = builder.compile(store=navin.store, checkpointer=navin.checkpointer)
    graph.invoke({"user_id": user_id, "preference": preference}, on_thread(f"profile-{user_id}"), durability="sync")
