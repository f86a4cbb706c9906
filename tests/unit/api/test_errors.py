"""Every error has a status that OpenAI's clients treat rightly, and a body that they and RFC 9457 readers can read."""

from __future__ import annotations

import httpx2
import openai
import pytest

from pipeline import errors
from serving.api.errors import ERROR_TABLE, ApiError, from_longfold, from_record

CLASSES = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.LongfoldError)]


def test_the_table_has_a_row_for_every_error_and_no_other() -> None:
    assert set(ERROR_TABLE) == set(CLASSES)
    codes = [row.code for error, row in ERROR_TABLE.items() if error is not errors.LongfoldError]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("error", CLASSES)
def test_an_error_has_the_status_of_whose_fault_it_is(error: type[errors.LongfoldError]) -> None:
    told = from_longfold(error())
    status = told.status_code
    assert status != 409, "OpenAI's clients retry it"
    if issubclass(error, errors.ModelIncomplete | errors.DatabaseUnusable):
        assert status == 503, "the command's caller is at fault; a client is not"
    elif issubclass(error, errors.CallerError):
        assert status in {400, 404, 413, 422}
    elif issubclass(error, errors.CapacityError):
        assert status in {429, 503, 504, 507}
    elif issubclass(error, errors.ModelError):
        assert status == 502
    else:
        assert status == 500
    if told.retry:
        assert issubclass(error, errors.CapacityError)
        assert told.retry_after_s is not None


@pytest.mark.parametrize("error", CLASSES)
def test_an_error_is_read_by_the_client_library(error: type[errors.LongfoldError]) -> None:
    told = from_longfold(error("What went wrong."), "question")
    body = told.body("req_1")
    assert body["status"] == told.status_code
    assert body["detail"] == "What went wrong."
    request = httpx2.Request("POST", "http://localhost/v1/chat/completions")
    response = httpx2.Response(told.status_code, json=body, headers={"x-request-id": "req_1"}, request=request)
    with openai.OpenAI(api_key="none", base_url="http://localhost/v1") as client:
        read = client._make_status_error_from_response(response)
    assert (read.code, read.param, read.type, read.request_id) == (told.code, "question", told.type, "req_1")
    assert "What went wrong." in str(read)


def test_a_failed_jobs_error_keeps_its_class_and_asks_for_no_retry() -> None:
    told = from_record({"type": "CallTimedOut", "message": "slow", "retryable": True})
    assert (told.status_code, told.code, told.retry) == (504, "call_timed_out", False)
    for unknown in ("NoSuchError", "ClassVar", "annotations", ""):
        assert from_record({"type": unknown}).status_code == 500


def test_a_quota_says_when_to_come_back_and_only_soon_is_left_to_the_client() -> None:
    soon = from_longfold(errors.QuotaExceeded(retry_after_s=2.5))
    late = from_longfold(errors.QuotaExceeded(retry_after_s=40_000))
    never = from_longfold(errors.QuotaExceeded())
    assert [told.retry for told in (soon, late, never)] == [True, False, False]
    assert [told.retry_after_s for told in (soon, late, never)] == [2.5, 40_000, None]


def test_409_cannot_be_said() -> None:
    with pytest.raises(AssertionError):
        ApiError(409, "conflict")
