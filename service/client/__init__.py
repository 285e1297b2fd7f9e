"""The clients of a running service: `Client`, and `AsyncClient` for event loops.

```python
with Client("http://127.0.0.1:8000") as client, client.session("ada") as session:
    answer = session.turn("user", "Where is my parcel?")
```

Calls return types of `service.wire` and raise exceptions of `service.client.errors`. The package
needs neither a model nor torch.

- `synchronous`, `asynchronous`: the two clients, which send calls.
- `operations`: every operation of the service as a call, written once for both.
- `calls`, `connection`, `attempts`, `uploads`: a call, the connections, retries, uploads of files.
"""

from turnwise.models.errors import DataError
from turnwise.service.candidate_files import CandidateFile, Columns
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
from turnwise.service.client.uploads import Loaded
from turnwise.service.wire.fields import GivenTurn
from turnwise.service.wire.planning import PlanAnswer, PlanGoal
from turnwise.service.wire.pools import (
    Edited,
    Matched,
    PoolCalibration,
    PoolInfo,
    Removed,
    Selected,
    UploadedCandidate,
)
from turnwise.service.wire.ranking import Avoided, GivenCandidate, Goal, RankAnswer, Ranked
from turnwise.service.wire.reranking import Relevance, RerankAnswer
from turnwise.service.wire.sessions import Feedback, ScoreMatrix, Transcript, TurnAnswer, Undone

__all__ = [
    "AccessError",
    "AsyncClient",
    "AsyncPool",
    "AsyncSession",
    "Avoided",
    "CandidateFile",
    "Client",
    "ClientError",
    "Columns",
    "ConflictError",
    "DataError",
    "Edited",
    "Feedback",
    "GivenCandidate",
    "GivenTurn",
    "Goal",
    "InvalidRequestError",
    "Loaded",
    "Matched",
    "NotFoundError",
    "OverloadedError",
    "PlanAnswer",
    "PlanGoal",
    "Pool",
    "PoolCalibration",
    "PoolInfo",
    "ProblemError",
    "RankAnswer",
    "Ranked",
    "Relevance",
    "Removed",
    "RerankAnswer",
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
