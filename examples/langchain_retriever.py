"""LangChain: candidates as documents, and a tool that leads toward a goal.

pip install langchain-core; turnwise serve; python examples/langchain_retriever.py
"""

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import ConfigDict

from turnwise import Client, Goal, Selected, Session


class ReplyRetriever(BaseRetriever):
    """Posts what the user says, and returns the best candidates after the whole context.

    Post the reply that you choose with `session.turn("bot", candidate=document.id, pool=pool)`. Its
    metadata have the example that found it (`matched`), if one did.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    session: Session
    pool: str = "default"
    top_k: int = 5

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
    ) -> list[Document]:
        answer = self.session.turn("user", query, pool=self.pool, top_k=self.top_k, respond=True)
        return [
            Document(page_content=each.text, id=each.id, metadata=_metadata(each))
            for each in answer.candidates
        ]


def _metadata(candidate: Selected) -> dict[str, Any]:
    matched = {"matched": candidate.matched.example} if candidate.matched else {}
    return {**candidate.metadata, **matched, "score": candidate.score}


def steering_tool(session: Session, pool: str = "default", top_k: int = 3) -> BaseTool:
    """Return a tool that finds candidates that lead the user to say a goal."""

    def replies_toward(goal: str) -> list[str]:
        """Find replies that lead the user to say the goal some turns later."""
        goals = [Goal(text=goal, speaker="user")]
        answer = session.rank(pool=pool, goals=goals, top_k=top_k)
        return [ranked.text for ranked in answer.ranking]

    return StructuredTool.from_function(replies_toward)


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Ask for candidates, then for candidates toward a goal."""
    with Client(url) as client, client.session(forget=True) as session:
        retriever = ReplyRetriever(session=session)
        for document in retriever.invoke("Hello, can I change the date of my booking?"):
            print(f"{document.metadata['score']:.3f}  {document.page_content}")
        goal: dict[str, Any] = {"goal": "Great, thank you so much!"}
        print(*steering_tool(session).invoke(goal), sep="\n")


if __name__ == "__main__":
    main()
