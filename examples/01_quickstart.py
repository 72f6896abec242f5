"""Two threads, one memory: what a user says in one conversation is known in the next.

Needs no server and no network: the database is embedded and kept in `./.navin`. Prints:

    monday:  Noted, you prefer tea.
    tuesday: You prefer tea.
    monday's thread still holds: I prefer tea
"""

from __future__ import annotations

from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from langgraph_navin import Navin

PREFERENCES = ("user", "dana", "preferences")


class State(TypedDict, total=False):
    said: str
    reply: str


def listen(state: State, runtime: Runtime) -> State:
    """Remember a preference that was said, or else say what is remembered."""
    assert runtime.store is not None
    if state["said"].startswith("I prefer "):
        drink = state["said"].removeprefix("I prefer ")
        runtime.store.put(PREFERENCES, "drink", {"text": drink})
        return {"reply": f"Noted, you prefer {drink}."}
    known = runtime.store.get(PREFERENCES, "drink")
    return {"reply": f"You prefer {known.value['text']}." if known else "I don't know what you prefer."}


def on_thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def main() -> None:
    builder = StateGraph(State).add_node("listen", listen).add_edge(START, "listen").add_edge("listen", END)
    with Navin.open() as navin:
        graph = builder.compile(store=navin.store, checkpointer=navin.checkpointer)
        monday = graph.invoke({"said": "I prefer tea"}, on_thread("monday"))
        tuesday = graph.invoke({"said": "What do I drink?"}, on_thread("tuesday"))
        print("monday: ", monday["reply"])
        print("tuesday:", tuesday["reply"])
        print("monday's thread still holds:", graph.get_state(on_thread("monday")).values["said"])


if __name__ == "__main__":
    main()
