"""What a check of the machine, the installation or a model found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"  # it works, but slower or with less than it could
    BAD = "bad"  # it does not work


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of `longfold doctor`."""

    name: str
    status: Status
    detail: str
    """What was found, for people."""
    fix: str = ""
    """What to do about it; empty if nothing is to be done."""


def ok(name: str, detail: str) -> CheckResult:
    return CheckResult(name=name, status=Status.OK, detail=detail)


def warn(name: str, detail: str, fix: str) -> CheckResult:
    return CheckResult(name=name, status=Status.WARN, detail=detail, fix=fix)


def bad(name: str, detail: str, fix: str) -> CheckResult:
    return CheckResult(name=name, status=Status.BAD, detail=detail, fix=fix)
