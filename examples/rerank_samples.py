"""Choose from many samples of a language model the one that best leads to a goal.

turnwise serve; python examples/rerank_samples.py "Great, thank you!" < samples.txt
"""

import sys
from collections.abc import Sequence

from turnwise import Avoided, Client, GivenTurn, Goal, RankAnswer


def toward(
    client: Client,
    context: Sequence[GivenTurn],
    samples: Sequence[str],
    goal: str,
    *,
    avoid: str | None = None,
    fit_weight: float = 0.2,
) -> RankAnswer:
    """Rank samples of the bot's next utterance by how well they lead the user to say the goal.

    Args:
        client: Connected to a service.
        context: The utterances so far.
        samples: Up to 1,000.
        goal: An utterance that the user should say.
        avoid: An utterance that the user should not say; samples that lead to it are rejected.
        fit_weight: Weight of the next-utterance score.
    """
    return client.rank(
        context,
        candidates=list(dict.fromkeys(samples)),
        goals=[Goal(text=goal, speaker="user")],
        avoid=[Avoided(text=avoid, speaker="user", threshold=1.2)] if avoid else [],
        fit_weight=fit_weight,
    )


def main(url: str = "http://127.0.0.1:8000") -> None:
    """Rank the lines of the input."""
    context = [GivenTurn(speaker="user", text="Hello, can I change the date of my booking?")]
    samples = [line.strip() for line in sys.stdin if line.strip()]
    with Client(url) as client:
        for ranked in toward(client, context, samples, goal=sys.argv[1]).ranking[:5]:
            print(f"{ranked.score:.3f}  {ranked.text}")


if __name__ == "__main__":
    main()
