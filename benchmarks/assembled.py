"""PostgreSQL with pgvector and an embedding server, as a team would join them, for `systems.py`.

A handler of FastAPI keeps the turns in PostgreSQL, asks an embedding server for the vector of the
newest utterances as one text, and asks pgvector for the nearest candidates. Its variables are
`ASSEMBLED_DATABASE`, `ASSEMBLED_EMBEDDINGS` (a URL) and `ASSEMBLED_WIDTH` (`ef_search`).
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI
from psycopg import AsyncConnection
from pydantic import BaseModel

from turnwise.models.roles import EncoderKind, Relation, Role, prefix

CONNECTIONS = 16
CONTEXT = 10
PREFIX = prefix(EncoderKind.TRIPLE, Role.SECOND, Relation.OTHER)
_TABLE = """
CREATE TABLE turns (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session text, speaker text, text text
);
CREATE INDEX ON turns (session, number)
"""
_ADD = "INSERT INTO turns (session, speaker, text) VALUES (%s, %s, %s)"
_SAID = "SELECT text FROM turns WHERE session = %s ORDER BY number DESC LIMIT %s"
_NEAREST = (
    "SELECT id, text, metadata, vector <#> %s::vector AS score FROM candidates "
    "ORDER BY score LIMIT %s"
)

free: asyncio.Queue[AsyncConnection[Any]] = asyncio.Queue()
http = httpx.AsyncClient(timeout=60)


class Turn(BaseModel):
    """An utterance, and the number of replies."""

    speaker: str
    text: str
    top_k: int = 5


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    database = os.environ["ASSEMBLED_DATABASE"]
    width = int(os.environ["ASSEMBLED_WIDTH"])
    for number in range(CONNECTIONS):
        connection = await AsyncConnection.connect(database, autocommit=True)
        await connection.execute(f"SET hnsw.ef_search = {width}")
        if number == 0:
            await connection.execute(_TABLE)
        free.put_nowait(connection)
    yield
    while not free.empty():
        await free.get_nowait().close()


app = FastAPI(lifespan=lifespan)


@app.get("/readyz")
async def ready() -> None:
    """Answer 200."""


@app.post("/sessions/{session}/turn")
async def turn(session: str, turn: Turn) -> dict[str, Any]:
    """Add an utterance to the context, and return the nearest candidates."""
    connection = await free.get()
    try:
        await connection.execute(_ADD, [session, turn.speaker, turn.text])
        rows = await (await connection.execute(_SAID, [session, CONTEXT])).fetchall()
        vector = await encode(PREFIX + " ".join(text for (text,) in reversed(rows)))
        found = await connection.execute(_NEAREST, [json.dumps(vector), turn.top_k])
        candidates = [
            {"id": name, "text": text, "metadata": metadata, "score": -score}
            for name, text, metadata, score in await found.fetchall()
        ]
    finally:
        free.put_nowait(connection)
    return {"candidates": candidates}


async def encode(text: str) -> list[float]:
    """Return the vector of a text."""
    body = {"model": "default", "input": [text]}
    answer = await http.post(os.environ["ASSEMBLED_EMBEDDINGS"], json=body)
    vector: list[float] = answer.raise_for_status().json()["data"][0]["embedding"]
    return vector
