"""From what a reduce call wrote to what is scored: LLMxMapReduce's step between the two, odd cases included."""

from __future__ import annotations

_ANSWER = ("Answer:", "答案：")
_CONFIDENCE = ("Confidence Score:", "置信分数：")
_WITH_PREFIX = ("code_debug", "longbook_choice_eng")
_CUT = ("longbook_qa_eng", "longbook_qa_chn", "longdialogue_qa_eng", "longbook_sum_eng")


def post_process(task: str, output: str) -> str:
    """Cut the answer out for the tasks that have it cut out; what has no heading, or is another task's, stays whole.

    The answer is what follows the last heading but for one character, taken for a space: of "Answer:B" nothing is left.
    Where options are asked for, it gets the prefix that the scorers look for.
    """
    if task not in _WITH_PREFIX + _CUT:
        return output
    heading = next((heading for heading in _ANSWER if heading in output), None)
    if heading is None:
        return output
    rest = output[output.rfind(heading) + len(heading) + 1 :]
    if task in _WITH_PREFIX:
        return f"answer: {rest}"
    end = max(rest.rfind(confidence) for confidence in _CONFIDENCE)
    return rest if end < 0 else rest[:end]
