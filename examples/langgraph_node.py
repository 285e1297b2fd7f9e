"""LangGraph: a node that answers from a pool, or abstains; the thread is the session.

pip install langgraph; turnwise serve; python examples/langgraph_node.py
"""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph

from turnwise import Client

UNSURE = "I am not sure. Let me get somebody who knows."


class ReplyNode:
    """Posts the newest message, and answers with the best candidate that was not said before.

    Below a confidence, by default that of the pool, or if everything was said, it says `UNSURE`.
    """

    def __init__(
        self, client: Client, pool: str = "default", min_confidence: float | None = None
    ) -> None:
        self._client = client
        self._pool = pool
        self._limit = {} if min_confidence is None else {"min_confidence": min_confidence}

    def __call__(self, state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        """Take the user's message, add the bot's."""
        session = self._client.session(config["configurable"]["thread_id"])
        text = state["messages"][-1].text.strip()
        answer = session.turn("user", text, pool=self._pool, repeat=False, **self._limit)
        if not answer.candidates:
            session.turn("bot", UNSURE)
            return {"messages": [AIMessage(UNSURE)]}
        best = answer.candidates[0]
        session.turn("bot", candidate=best.id, pool=self._pool)
        return {"messages": [AIMessage(best.text, response_metadata={"reply_id": best.id})]}


def graph(
    client: Client, pool: str = "default", min_confidence: float | None = None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a graph with this node only, to extend."""
    builder = StateGraph(MessagesState)
    builder.add_node("reply", ReplyNode(client, pool, min_confidence))
    builder.add_edge(START, "reply")
    builder.add_edge("reply", END)
    return builder.compile(checkpointer=InMemorySaver())


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Talk for two turns."""
    with Client(url) as client:
        bot = graph(client)
        thread: RunnableConfig = {"configurable": {"thread_id": "langgraph-example"}}
        for text in ("Hello, can I change the date of my booking?", "To next Friday, please."):
            state = bot.invoke({"messages": [HumanMessage(text)]}, thread)
            print(f"user: {text}\nbot:  {state['messages'][-1].text}")
        client.session("langgraph-example").delete()


if __name__ == "__main__":
    main()
