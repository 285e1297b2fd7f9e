"""LlamaIndex: a retriever that reads the memory of a chat engine as well as the question.

pip install llama-index-core; turnwise serve;
turnwise pool load examples/search/passages.jsonl --pool city;
python examples/search/llama_index_search.py
"""

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from recipe import search

from turnwise import Client, GivenTurn

_SPEAKERS = {MessageRole.USER: "user", MessageRole.ASSISTANT: "bot"}


class ConversationRetriever(BaseRetriever):
    """Finds passages for a question that comes after the messages in a memory.

    Give a `ContextChatEngine` the same memory: it adds question and answer after each search.
    """

    def __init__(
        self, client: Client, memory: BaseMemory, pool: str = "default", top_k: int = 5
    ) -> None:
        super().__init__()
        self._client = client
        self._memory = memory
        self._pool = pool
        self._top_k = top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = ChatMessage(query_bundle.query_str, role=MessageRole.USER)
        turns = [
            GivenTurn(speaker=_SPEAKERS[message.role], text=message.content)
            for message in [*self._memory.get_all(), question]
            if message.role in _SPEAKERS and message.content and message.content.strip()
        ]
        return [
            NodeWithScore(
                node=TextNode(
                    id_=found.id, text=found.body or found.text, metadata=found.metadata or {}
                ),
                score=found.score,
            )
            for found in search(self._client, self._pool, turns, self._top_k)
        ]


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Ask a question that needs the one before."""
    memory = ChatMemoryBuffer.from_defaults(
        chat_history=[
            ChatMessage("When does the last ferry to the island leave?"),
            ChatMessage("The last one leaves at ten at night.", role=MessageRole.ASSISTANT),
        ]
    )
    with Client(url) as client:
        retriever = ConversationRetriever(client, memory, pool="city", top_k=2)
        for found in retriever.retrieve("And what does it cost?"):
            print(f"{found.score:.3f}  {found.text}")


if __name__ == "__main__":
    main()
