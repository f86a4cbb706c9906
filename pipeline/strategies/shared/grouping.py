"""Neighbours into groups that fit one prompt: pure arithmetic on sizes in tokens."""

from __future__ import annotations

from collections.abc import Sequence


def greedy_groups(sizes: Sequence[int], room: int) -> list[range]:
    """Fill each group before the next begins, as published systems do. What is over-long stands alone."""
    groups: list[range] = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > room:
            groups.append(range(start, index))
            start, total = index, 0
        total += size
    return [*groups, range(start, len(sizes))] if sizes else []


def balanced_groups(sizes: Sequence[int], room: int) -> list[range]:
    """As few groups as `greedy_groups`, of about the same size: 11 items at ten a group become 6 and 5, not 10 and 1.

    No size may exceed `room`; then no group does.
    """
    needed = _groups_needed(sizes, room)
    groups: list[range] = []
    start, left = 0, sum(sizes)
    for remaining in range(needed[0] if sizes else 0, 0, -1):
        end, total = start, 0
        while end < len(sizes) and total + sizes[end] <= room:
            near_its_share = total + sizes[end] / 2 > left / remaining
            if end > start and near_its_share and needed[end] < remaining:
                break
            total += sizes[end]
            end += 1
        groups.append(range(start, end))
        start, left = end, left - total
    return groups


def _groups_needed(sizes: Sequence[int], room: int) -> list[int]:
    """For each place, how many groups hold everything from there on; 0 at the end."""
    needed = [0] * (len(sizes) + 1)
    end, total = len(sizes), 0
    for start in range(len(sizes) - 1, -1, -1):
        total += sizes[start]
        while total > room and end > start + 1:
            end -= 1
            total -= sizes[end]
        needed[start] = 1 + needed[end]
    return needed


def worst_passes(
    first_tokens: int, items: int, later_tokens: int, *, limit: int, room: int, max_rounds: int, retried: bool = True
) -> list[int]:
    """Calls of each collapse pass if every output is as long as it may be.

    A pass that would not shrink is, if `retried`, made once more and is the last; else passes go on up to `max_rounds`.
    """
    passes: list[int] = []
    sizes = [first_tokens] * items
    while sum(sizes) > limit and len(passes) < max_rounds:
        pieces = [min(size, room) for size in sizes for _ in range(-(-size // room))]
        groups = len(greedy_groups(pieces, room))
        passes.append(groups)
        sizes = [later_tokens] * groups
        if retried and sum(sizes) > limit and len(greedy_groups([min(s, room) for s in sizes], room)) >= groups:
            passes[-1] *= 2
            break
    return passes
