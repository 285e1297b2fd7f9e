"""Measures whether the confidence is as good with four wordings of an answer as with one.

    turnwise serve &
    python research/wordings.py [--url http://127.0.0.1:8000] [--data research/wordings.jsonl]

The file has `{"id", "texts", "examples"}` a line, as for `turnwise evaluate answers`: wordings of
an answer, and questions that ask for it. One pool has the first wording of each answer, another all
of them, in a group. Each question opens a session, and so do the questions of `OUTSIDE`, which no
answer fits. A first candidate is right if it is a wording of the right answer.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from turnwise import Client, UploadedCandidate
from turnwise.models.data import read_records
from turnwise.models.evaluation.metrics import auroc

OUTSIDE = (
    "Who won the game last night?",
    "Which bus goes to the airport?",
    "My tooth hurts.",
    "Can you recommend a good pizza place?",
    "What is seventeen times twelve?",
    "It has been raining all day.",
    "I'd like to rent a boat.",
    "How do I change the tyre of my car?",
    "Who is the president of France?",
    "My neighbour plays the drums at night.",
    "Do you sell fishing rods?",
    "Could you water my plants while I am away?",
    "I need a haircut.",
    "Is there a flight to Lisbon on Friday?",
    "My oven does not get hot.",
    "What should I cook tonight?",
    "How tall is Mount Everest?",
    "I have to see a vet with my cat.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--data", type=Path, default=Path("research/wordings.jsonl"))
    options = parser.parse_args()

    answers = [
        (record.text("id"), record.texts("texts"), record.texts("examples"))
        for record in read_records(options.data)
    ]
    asked = [(question, answer) for answer, _, questions in answers for question in questions]
    asked += [(question, "") for question in OUTSIDE]
    print("wordings  R@1    AUROC")
    with Client(options.url) as client:
        for count in (1, len(answers[0][1])):
            pool = client.pool(f"wordings-{count}")
            pool.create()
            pool.upsert(
                [
                    UploadedCandidate(id=f"{answer}-{number}", text=text, group=answer)
                    for answer, texts, _ in answers
                    for number, text in enumerate(texts[:count])
                ]
            )
            found = np.array([*ask(client, pool.name, asked)])
            pool.delete()
            right = found[:, 1].astype(bool)
            inside = sum(answer != "" for _, answer in asked)
            print(f"{count:8d}  {right[:inside].mean():.3f}  {auroc(found[:, 0], right):.3f}")


def ask(
    client: Client, pool: str, asked: list[tuple[str, str]]
) -> Iterator[tuple[float | None, bool]]:
    """Yield the confidence in the first candidate after each question, and whether it is right."""
    for question, answer in asked:
        with client.session(forget=True) as session:
            found = session.turn("user", question, pool=pool, top_k=1)
            yield found.confidence, found.candidates[0].group == answer


if __name__ == "__main__":
    main()
