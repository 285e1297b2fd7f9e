"""The recipe of conversational search, for the retrievers in this folder.

turnwise pool load examples/search/passages.jsonl --pool city
"""

from collections.abc import Sequence

from turnwise import Client, GivenTurn, Ranked

UTTERANCES = 3
"""A question, its answer, and the next question."""
WORDS = 50
"""First words of an answer that count. More of them find little more."""
_MOST_CHARS = 1000
"""The encoder reads as much of a text. A long message has its question at the end."""


def newest(turns: Sequence[GivenTurn]) -> list[GivenTurn]:
    """Return the end of a conversation, which finds the passages for its last question."""
    asks = turns[-1].speaker
    return [
        GivenTurn(
            speaker=turn.speaker,
            text=turn.text[-_MOST_CHARS:]
            if turn.speaker == asks
            else " ".join(turn.text.split()[:WORDS]),
        )
        for turn in turns[-UTTERANCES:]
    ]


def search(client: Client, pool: str, turns: Sequence[GivenTurn], top_k: int) -> list[Ranked]:
    """Return passages for the last question of a conversation, the best first."""
    return client.rank(newest(turns), pool=pool, top_k=top_k).ranking
