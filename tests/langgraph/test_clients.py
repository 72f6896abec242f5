"""Clients that know nothing of us, unmodified: langmem's tools, deepagents' file system, an agent's own tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore

from store_subjects import Do, Opened, indexed

#: InMemoryStore shows that the clients work as used here; PostgresStore's two classes each lack a colour.
pytestmark = pytest.mark.parametrize("subject", ["memory-sync", "memory-async", "navin-sync", "navin-async"], indirect=True)


class Script(GenericFakeChatModel):
    """A chat model that says its lines in turn and keeps what it was asked."""

    seen: list[list[BaseMessage]] = []  # noqa: RUF012  pydantic copies it for each instance

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(messages)
        return super()._generate(messages, *args, **kwargs)


def script(*lines: AIMessage) -> Script:
    return Script(messages=iter([*lines, AIMessage("done")]))


def calls(*named: tuple[str, dict[str, Any]]) -> AIMessage:
    """A line that calls these tools."""
    return AIMessage(
        "", tool_calls=[{"name": name, "args": args, "id": f"c{at}", "type": "tool_call"} for at, (name, args) in enumerate(named)]
    )


async def run(do: Do, agent: Any, **configurable: str) -> list[ToolMessage]:
    """What the tools answered, of one run in the subject's colour."""
    asked, config = {"messages": [("user", "go")]}, {"configurable": configurable}
    state = agent.invoke(asked, config) if do.colour == "sync" else await agent.ainvoke(asked, config)
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


async def use(do: Do, tool: BaseTool, **arguments: Any) -> Any:
    return tool.invoke(arguments) if do.colour == "sync" else await tool.ainvoke(arguments)


# -- langmem


async def test_langmem_tools_in_an_agent(do: Do) -> None:
    from langmem import create_manage_memory_tool, create_search_memory_tool

    namespace = ("memories", "{langgraph_user_id}")
    tools = [create_manage_memory_tool(namespace=namespace), create_search_memory_tool(namespace=namespace)]
    model = script(calls(("manage_memory", {"content": "likes tea"})), calls(("search_memory", {"query": "tea", "limit": 5})))
    answers = await run(do, create_agent(model, tools=tools, store=do.store), langgraph_user_id="u1")
    assert str(answers[0].content).startswith("created memory")
    assert "likes tea" in str(answers[1].content)
    assert [item.value for item in await do.search(("memories", "u1"))] == [{"content": "likes tea"}]
    assert await do.search(("memories", "u2")) == []


async def test_langmem_tools_on_their_own(opened: Opened) -> None:
    from langmem import create_manage_memory_tool, create_search_memory_tool

    do = await opened(index=indexed("content"))
    manage = create_manage_memory_tool(namespace=("memories", "u1"), store=do.store)
    find = create_search_memory_tool(namespace=("memories", "u1"), store=do.store)
    await use(do, manage, content="likes tea")
    key = (await do.search(("memories", "u1")))[0].key
    assert key in str(await use(do, manage, id=key, content="likes coffee", action="update"))
    found = await use(do, find, query="coffee")
    assert "likes coffee" in str(found)
    assert "tea" not in str(found)
    await use(do, manage, id=key, action="delete")
    assert await do.search(("memories", "u1")) == []


# -- an agent's own tool


@tool
def remember(colour: str, runtime: ToolRuntime) -> str:
    """Keep the favourite colour."""
    assert runtime.store is not None
    runtime.store.put(("prefs", "u1"), "colour", {"colour": colour})
    item = runtime.store.get(("prefs", "u1"), "colour")
    assert item is not None
    return str(item.value["colour"])


@tool
async def aremember(colour: str, runtime: ToolRuntime) -> str:
    """Keep the favourite colour."""
    assert runtime.store is not None
    await runtime.store.aput(("prefs", "u1"), "colour", {"colour": colour})
    item = await runtime.store.aget(("prefs", "u1"), "colour")
    assert item is not None
    return str(item.value["colour"])


async def test_a_tool_uses_the_store_of_its_runtime(do: Do) -> None:
    own = remember if do.colour == "sync" else aremember
    model = script(calls((own.name, {"colour": "blue"})), calls((own.name, {"colour": "green"})))
    answers = await run(do, create_agent(model, tools=[own], store=do.store))
    assert [answer.content for answer in answers] == ["blue", "green"]
    assert (await do.must_get(("prefs", "u1"), "colour")).value == {"colour": "green"}


async def test_a_sync_tool_works_in_an_async_run(do: Do) -> None:
    model = script(calls(("remember", {"colour": "blue"})))
    agent: Any = create_agent(model, tools=[remember], store=do.store)
    state = await agent.ainvoke({"messages": [("user", "go")]})
    assert [message.content for message in state["messages"] if isinstance(message, ToolMessage)] == ["blue"]
    assert (await do.must_get(("prefs", "u1"), "colour")).value == {"colour": "blue"}


# -- deepagents

FILES = ("u1", "filesystem")
AGENTS = "/memories/AGENTS.md"


def deep_agent(store: BaseStore, model: Script) -> Any:
    """An agent whose files under /memories/ live in the store, and whose memory file is read at its start."""
    from deepagents import create_deep_agent
    from deepagents.backends import CompositeBackend, StateBackend, StoreBackend

    backend = CompositeBackend(default=StateBackend(), routes={"/memories/": StoreBackend(namespace=lambda _runtime: FILES)})
    return create_deep_agent(model=model, backend=backend, store=store, checkpointer=InMemorySaver(), memory=[AGENTS])


async def test_deepagents_files_in_the_store(do: Do) -> None:
    write = calls(("write_file", {"file_path": AGENTS, "content": "# prefs\nlikes tea\n"}))
    scratch = calls(("write_file", {"file_path": "/scratch.txt", "content": "passing"}))
    edit = calls(("edit_file", {"file_path": AGENTS, "old_string": "tea", "new_string": "coffee"}))
    look = calls(("read_file", {"file_path": AGENTS}), ("ls", {"path": "/memories/"}), ("grep", {"pattern": "coffee"}))
    answers = await run(do, deep_agent(do.store, script(write, scratch, edit, look)), thread_id="t1")
    assert "likes coffee" in str(answers[3].content)
    assert AGENTS in str(answers[4].content)
    assert AGENTS in str(answers[5].content)
    stored = await do.search(FILES)
    assert [item.key for item in stored] == ["/AGENTS.md"]
    assert stored[0].value["content"] == "# prefs\nlikes coffee\n"

    later = script(calls(("delete", {"file_path": AGENTS})))
    await run(do, deep_agent(do.store, later), thread_id="t2")
    system = next(message for message in later.seen[0] if isinstance(message, SystemMessage))
    assert "likes coffee" in str(system.content)
    assert await do.search(FILES) == []


async def test_deepagents_pages_through_many_files(do: Do) -> None:
    from deepagents.backends import StoreBackend

    files = StoreBackend(namespace=lambda _runtime: ("u1", "bulk"), store=do.store)
    paths = [f"/d{n % 3}/f{n:03}.md" for n in range(230)]

    async def ask(verb: str, *arguments: Any) -> Any:
        if do.colour == "sync":
            return getattr(files, verb)(*arguments)
        asynchronous: Callable[..., Any] = getattr(files, f"a{verb}")
        return await asynchronous(*arguments)

    for n, path in enumerate(paths):
        await ask("write", path, f"line {n}")
    assert sorted(match["path"] for match in (await ask("glob", "**/*.md")).matches) == sorted(paths)
    assert len((await ask("ls", "/d1")).entries) == 77
    assert len((await ask("grep", "line 7")).matches) == 11
    await ask("delete", "/d1")
    assert len((await ask("glob", "**/*.md")).matches) == 230 - 77


async def test_deepagents_keeps_bytes(do: Do) -> None:
    from deepagents.backends import StoreBackend

    files = StoreBackend(namespace=lambda _runtime: ("u1", "images"), store=do.store)
    image = b"\x89PNG\xff\x00"
    if do.colour == "sync":
        sent, kept = files.upload_files([("/img.png", image)]), files.download_files(["/img.png"])
    else:
        sent, kept = await files.aupload_files([("/img.png", image)]), await files.adownload_files(["/img.png"])
    assert (sent[0].error, kept[0].error) == (None, None)
    assert kept[0].content == image
    assert (await do.must_get(("u1", "images"), "/img.png")).value["encoding"] == "base64"
