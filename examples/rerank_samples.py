"""Choose, of many samples of a language model, the one that leads to a goal some turns ahead.

turnwise serve; python examples/rerank_samples.py "Great, thank you!" < samples.txt
"""

import sys
from collections.abc import Sequence

from turnwise.service.client import Avoided, Client, GivenTurn, Goal, RankAnswer


def toward(
    client: Client,
    context: Sequence[GivenTurn],
    samples: Sequence[str],
    goal: str,
    *,
    avoid: str | None = None,
    fit_weight: float = 0.2,
) -> RankAnswer:
    """Rank samples of the bot's next utterance by how they lead the user to say the goal.

    Args:
        client: Of a service.
        context: What was said.
        samples: Up to 1,000.
        goal: What the user should end up saying.
        avoid: What the user should not: samples that lead there are rejected.
        fit_weight: How much it counts that a sample fits what was just said.
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
