"""Requests made out of `/openapi.json`: what it allows is accepted, what it forbids is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from tests.support.service import Launch

if TYPE_CHECKING:
    import schemathesis

_BEYOND_A_SCHEMA = [
    "two goals have the same id",
    "idempotency-mismatch",
    "levels deep",
    "a filter has at most",
    "not JSON",  # `where` of a list is JSON in a query
    "should be an object with at least one field",
    "should have at least one condition",
    "is not a condition",
    "should be a number, as '",
    "should be a string, as '",
    "there is no confidence",
    "needs a message of the user or the assistant",
    "this service has no candidate store",
    "only the responder",
    "more than the limit of",  # `max_turns` is a setting
]
_EXAMPLES = settings(max_examples=1, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(
    "mode",
    ["positive", pytest.param("negative", marks=pytest.mark.nightly)],
)
def test_every_operation_keeps_what_the_document_says(launch: Launch, mode: str) -> None:
    import schemathesis

    generation_mode = schemathesis.GenerationMode(mode)
    live = launch()
    live.fill()
    schema = schemathesis.openapi.from_url(f"{live.http.base_url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    asking = [each for each in operations if each.body or each.path_parameters]
    assert len(asking) > 10
    for operation in asking:
        check_operation(operation.as_strategy(generation_mode=generation_mode))


def check_operation(cases: SearchStrategy[schemathesis.Case]) -> None:
    @_EXAMPLES
    @given(case=cases)
    def check(case: schemathesis.Case) -> None:
        response = case.call()
        if not any(reason in response.text for reason in _BEYOND_A_SCHEMA):
            case.validate_response(response)

    check()
