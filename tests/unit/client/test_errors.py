import httpx
import pytest

from turnwise.service import errors as of_service
from turnwise.service.api.http.problems import problem_response
from turnwise.service.client.calls import check
from turnwise.service.client.errors import ProblemError, UnreachableError


def kinds(error: type[Exception]) -> list[type[Exception]]:
    """The class and all below it."""
    return [error, *(leaf for kind in error.__subclasses__() for leaf in kinds(kind))]


def made(kind: type[of_service.ServiceError]) -> of_service.ServiceError:
    field = of_service.FieldError(("body", "candidates", 3), "is wrong")
    if issubclass(kind, of_service.InvalidRequest):
        return kind([field])
    return kind("what happened", [field])


def answered(error: of_service.ServiceError) -> ProblemError:
    response = problem_response(error)
    answer = httpx.Response(
        response.status_code, headers=dict(response.headers), content=bytes(response.body)
    )
    answer.request = httpx.Request("GET", "http://turnwise")
    with pytest.raises(ProblemError) as caught:
        check(answer)
    return caught.value


@pytest.mark.parametrize("kind", kinds(of_service.ServiceError))
def test_every_problem_becomes_an_error_with_all_its_fields(
    kind: type[of_service.ServiceError],
) -> None:
    problem = made(kind)
    error = answered(problem)
    assert (error.status, error.title, error.detail) == (kind.status, kind.title, problem.detail)
    assert error.type == f"urn:turnwise:problem:{kind.slug}"
    assert error.kind == kind.slug
    assert error.errors == problem.errors
    assert error.retry_after == kind.retry_after
    assert error.temporary is (kind.retry_after is not None)
    assert str(error) == f"{kind.title}: {problem.detail}"


@pytest.mark.parametrize(
    "error",
    [httpx.ConnectError("http://ada:secret@host"), httpx.InvalidURL("Invalid port: 'secret'")],
)
def test_an_error_does_not_show_the_password_of_a_url(error: Exception) -> None:
    text = str(UnreachableError("http://ada:secret@host:80/turnwise", error))
    assert text.startswith("http://host:80/turnwise cannot be reached: ")
    assert "secret" not in text


def test_no_status_belongs_to_two_classes() -> None:
    statuses = [n for kind in ProblemError.__subclasses__() for n in kind.statuses]
    assert len(statuses) == len(set(statuses))


def test_a_refused_connection_has_changed_nothing_and_a_lost_one_may_have() -> None:
    refused = UnreachableError("u", httpx.ConnectError("refused"))
    lost = UnreachableError("u", httpx.ReadError("reset"))
    assert (refused.temporary, refused.undone) == (True, True)
    assert (lost.temporary, lost.undone) == (True, False)
    assert not UnreachableError("u", httpx.UnsupportedProtocol("no scheme")).temporary


def test_an_error_without_a_message_shows_its_type() -> None:
    assert str(UnreachableError("u", httpx.ReadTimeout(""))) == "u cannot be reached: ReadTimeout"
