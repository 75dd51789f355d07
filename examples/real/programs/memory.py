"""langgraph with its checkpoints in SQLite, the memory of an agent. It asks for WAL itself, and waits 5 s for a lock."""

import operator
import sqlite3
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

DATABASES = ["memory.db"]
TURNS = 10  # of a conversation


class State(TypedDict):
    """What an agent remembers of a conversation."""

    said: Annotated[list, operator.add]


def agent():
    """A graph of two steps, as one builds it around calls of a model; a checkpoint after each."""
    graph = StateGraph(State)
    graph.add_node("think", lambda state: {"said": [f"thought {len(state['said'])}"]})
    graph.add_node("answer", lambda state: {"said": [f"answer {len(state['said'])}"]})
    graph.add_edge(START, "think")
    graph.add_edge("think", "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=SqliteSaver(sqlite3.connect("memory.db", check_same_thread=False)))


def prepare():
    """The saver makes its tables when it is first asked."""
    agent().get_state({"configurable": {"thread_id": "none"}})


def worker(number, acknowledged):
    """A turn of one of its conversations."""
    memory = agent()
    turns = 0

    def operate():
        nonlocal turns
        thread = f"{number}/{turns // TURNS}"
        turns += 1
        config = {"configurable": {"thread_id": thread}}
        said = f"{number}/{turns}"
        memory.invoke({"said": [said]}, config)
        acknowledged.append([thread, said])

    return operate


def missing(acknowledged):
    """Each conversation has all turns that were answered."""
    memory = agent()
    threads = {thread for thread, _ in acknowledged}
    said = {thread: memory.get_state({"configurable": {"thread_id": thread}}).values["said"] for thread in threads}
    lost = [turn for thread, turn in acknowledged if turn not in said[thread]]
    return f"{len(lost)} of {len(acknowledged)} turns are missing" if lost else ""
