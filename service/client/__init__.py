"""Talk to a running service: `Client`, and `AsyncClient` for event loops.

```python
with Client("http://127.0.0.1:8000") as client, client.session("ada") as session:
    answer = session.turn("user", "Where is my parcel?")
```

Answers are the values of `service.requests`, and what goes wrong the exceptions of
`service.client.errors`. Nothing in here needs the model, or its libraries.
"""

from turnwise.service.client.asynchronous import AsyncClient, AsyncPool, AsyncSession
from turnwise.service.client.errors import (
    AccessError,
    ClientError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    ProblemError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from turnwise.service.client.synchronous import Client, Pool, Session
from turnwise.service.wire.catalogue import Edited, PoolInfo, UploadedCandidate
from turnwise.service.wire.requests import (
    Avoided,
    Candidate,
    Goal,
    PlanAnswer,
    PlanGoal,
    Post,
    RankAnswer,
    Ranked,
    ScoreMatrix,
    Selected,
    Transcript,
    TurnAnswer,
    Undone,
)

__all__ = [
    "AccessError",
    "AsyncClient",
    "AsyncPool",
    "AsyncSession",
    "Avoided",
    "Candidate",
    "Client",
    "ClientError",
    "ConflictError",
    "Edited",
    "Goal",
    "InvalidRequestError",
    "NotFoundError",
    "OverloadedError",
    "PlanAnswer",
    "PlanGoal",
    "Pool",
    "PoolInfo",
    "Post",
    "ProblemError",
    "RankAnswer",
    "Ranked",
    "ScoreMatrix",
    "Selected",
    "Session",
    "Transcript",
    "TurnAnswer",
    "UnavailableError",
    "Undone",
    "UnexpectedAnswerError",
    "UnreachableError",
    "UploadedCandidate",
]
