"""What Spark reports about a failed task, in one line. The messages are those of Spark 4.3."""

from __future__ import annotations

import pytest

from kseg.spark.task_errors import is_a_bug, is_node_failure, reason

ABORTED = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0"
IN_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
ModuleNotFoundError: No module named 'elsewhere'
"""


@pytest.mark.parametrize(
    "output, reported",
    [
        (
            (
                f"{ABORTED} (TID 7) (10.0.0.7 executor 1): org.apache.spark.SparkException: Python worker exited unexpectedly "
                "(crashed)\n\tat org.apache.spark.api.python.BasePythonRunner\n"
            ),
            "Python worker exited unexpectedly (crashed) (on 10.0.0.7, executor 1)",
        ),
        (
            (
                f"{ABORTED} (TID 7) (node-3 executor 12): ExecutorLostFailure (executor 12 exited caused by one of the running "
                "tasks) Reason: Command exited with code 137\nDriver stacktrace:"
            ),
            (
                "ExecutorLostFailure (executor 12 exited caused by one of the running tasks) Reason: Command exited with code "
                "137 (on node-3, executor 12)"
            ),
        ),
        (
            f"{ABORTED} (TID 7) (h executor 1): org.apache.spark.api.python.PythonException: {IN_PYTHON}\n\tat org.x(Y.scala:1)\n",
            "ModuleNotFoundError: No module named 'elsewhere' (on h, executor 1)",
        ),
        (IN_PYTHON, "ModuleNotFoundError: No module named 'elsewhere'"),
        (
            'java.io.IOException: Cannot run program "python9": error=2\n\tat x',
            'Cannot run program "python9": error=2',
        ),
        (
            (
                f"{ABORTED} (TID 7) (h executor 1): org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
                '  File "x.py", line 3, in read\nkseg.segment.errors.UnreadableInput: the node n does not see /data\n\tat org.x\n'
            ),
            "the node n does not see /data (on h, executor 1)",
        ),
        ("", "it did not say why"),
    ],
)
def test_spark_task_error_is_reported_in_one_line(output: str, reported: str) -> None:
    assert reason(Exception(output)) == reported


def test_node_failures_are_not_blamed_on_a_target() -> None:
    assert is_node_failure(Exception(IN_PYTHON))
    assert is_node_failure(Exception('java.io.IOException: Cannot run program "python9": error=2'))
    assert not is_node_failure(Exception("Python worker exited unexpectedly (crashed)"))


def test_only_an_unexpected_exception_of_kseg_is_a_bug() -> None:
    assert is_a_bug(Exception(IN_PYTHON.replace("ModuleNotFoundError", "ZeroDivisionError")))
    ours = "Traceback (most recent call last):\nkseg.segment.errors.UnreadableInput: cannot read /data\n"
    for output in (
        "Python worker exited unexpectedly (crashed)",
        f"{ABORTED} (TID 7) (n executor 1): {ours}",
    ):
        assert not is_a_bug(Exception(output))
    for why in ("Command exited with code 137", "Remote RPC client disassociated"):
        lost = f"{ABORTED} (TID 7) (n executor 1): ExecutorLostFailure (executor 1 exited) Reason: {why}"
        assert not is_a_bug(Exception(lost))
