"""A plain service for `peer.py`: FastAPI, sentence-transformers and a flat FAISS index.

It keeps contexts in memory. The handler, in one of the server's threads, calls
`SentenceTransformer.encode` on the whole context as one text, or on the last utterance alone; the
request chooses. `PLAIN_SERVICE` names a folder with `vectors.npy` and `texts.json`.
"""

import json
import os
from pathlib import Path
from typing import Literal

import faiss
import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

from turnwise.models.roles import EncoderKind, Relation, Role, prefix
from turnwise.service.settings import Settings

SETTINGS = Settings()
MODEL = SentenceTransformer(
    str(SETTINGS.model), device=SETTINGS.device, model_kwargs={"dtype": "float32"}
)
FOLDER = Path(os.environ["PLAIN_SERVICE"])
TEXTS: list[str] = json.loads((FOLDER / "texts.json").read_text(encoding="utf-8"))
VECTORS = np.load(FOLDER / "vectors.npy")
INDEX = faiss.IndexFlatIP(VECTORS.shape[1])
INDEX.add(VECTORS)
PREFIX = prefix(EncoderKind.TRIPLE, Role.SECOND, Relation.OTHER)
CONTEXTS: dict[str, list[str]] = {}

app = FastAPI()


class Turn(BaseModel):
    """An utterance, the text that is encoded, and the number of replies."""

    text: str
    encode: Literal["context", "last"] = "context"
    top_k: int = 5


class Reply(BaseModel):
    """A candidate."""

    id: int
    text: str
    score: float


@app.get("/readyz")
def ready() -> None:
    """Answer 200. The server answers only after it has loaded the model and the vectors."""


@app.post("/sessions/{session_id}/turn")
def turn(session_id: str, turn: Turn) -> list[Reply]:
    """Add an utterance to the context and return the nearest candidates."""
    context = CONTEXTS.setdefault(session_id, [])
    context.append(turn.text)
    text = " ".join(context) if turn.encode == "context" else turn.text
    vector = MODEL.encode(PREFIX + text, normalize_embeddings=True, show_progress_bar=False)
    scores, indices = INDEX.search(np.asarray(vector)[None], turn.top_k)
    return [
        Reply(id=index, text=TEXTS[index], score=score)
        for index, score in zip(indices[0].tolist(), scores[0].tolist(), strict=True)
    ]
