"""python -m bench.peers.child MODULE: an adapter in its own interpreter, which takes requests from standard input.

The first line is a task; the answer says what the peer will do, or why it cannot (null: it has no such call). Every
further line has one argument of its `run`, and whether the call must stay on one core. The answer has the result, and
how often this thread was taken off its core so far. All lines are JSON. The process ends when its standard input ends.
"""

import contextlib
import importlib
import json
import os
import sys
from typing import Any

from bench.cores import one_core, times_interrupted
from bench.peers.task import LeftOut, Task, Works


def main(module: str) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries goes to stderr, since stdout is for answers
    task = Task.from_json(sys.stdin.readline())
    try:
        works: Works = importlib.import_module(module).WORKS
        if task.work not in works:
            say(answers, {"left_out": None})
            return 0
        with works[task.work](task) as ready:
            say(answers, {"name": ready.name, "slice_s": ready.slice_s, "least_calls": ready.least_calls})
            for line in sys.stdin:
                question = json.loads(line)
                with one_core() if question.get("alone") else contextlib.nullcontext():
                    value = ready.run(question["run"])
                say(answers, {"value": value, "interrupted": times_interrupted()})
    except LeftOut as reason:
        say(answers, {"left_out": str(reason)})
    return 0


def say(answers: Any, value: Any) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
