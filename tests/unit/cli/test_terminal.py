import io
from typing import cast

from rich.console import Console

from turnwise.service.cli.terminal import Chat
from turnwise.service.client import Selected, Session
from turnwise.service.wire.sessions import TurnAnswer


class Reranked:
    """A session whose answers the model's own re-ranker has ordered."""

    def turn(self, speaker: str, text: str, **options: object) -> TurnAnswer:
        found = Selected.model_construct(id="a", text="Here it is.", score=1.5, matched=None)
        return TurnAnswer.model_construct(candidates=[found], reranked=True)


def test_an_answer_that_was_re_ranked_says_so() -> None:
    written = io.StringIO()
    chat = Chat(cast(Session, Reranked()), Console(file=written), pool="default", top_k=5)
    assert chat.hear("Where is it?")
    assert "re-ranked" in written.getvalue()
    assert "1.500" in written.getvalue()
