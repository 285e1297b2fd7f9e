"""LangChain: a retriever that reads the conversation, and not only the last message.

pip install langchain-core; turnwise serve;
turnwise pool load examples/search/passages.jsonl --pool city;
python examples/search/langchain_search.py
"""

from collections.abc import Sequence

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict
from recipe import search

from turnwise import Client, GivenTurn

_SPEAKERS = {"human": "user", "ai": "bot"}


class ConversationRetriever(BaseRetriever):
    """Finds passages for the last question of some messages, or for a question alone."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    client: Client
    pool: str = "default"
    top_k: int = 5

    def _get_relevant_documents(
        self,
        query: str | Sequence[BaseMessage],
        *,
        run_manager: CallbackManagerForRetrieverRun,
    ) -> list[Document]:
        messages = [HumanMessage(query)] if isinstance(query, str) else query
        turns = [
            GivenTurn(speaker=_SPEAKERS[message.type], text=message.text)
            for message in messages
            if message.type in _SPEAKERS and message.text.strip()
        ]
        return [
            Document(
                page_content=found.body or found.text,
                id=found.id,
                metadata=(found.metadata or {}) | {"score": found.score},
            )
            for found in search(self.client, self.pool, turns, self.top_k)
        ]


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Ask a question that needs the one before."""
    said = [
        HumanMessage("When does the last ferry to the island leave?"),
        AIMessage("The last one leaves at ten at night."),
        HumanMessage("And what does it cost?"),
    ]
    with Client(url) as client:
        for document in ConversationRetriever(client=client, pool="city", top_k=2).invoke(said):
            print(f"{document.metadata['score']:.3f}  {document.page_content}")


if __name__ == "__main__":
    main()
