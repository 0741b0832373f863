"""Why a Spark task failed, in one line.

A failure arrives as a Java exception whose message contains the history of the task and two stack traces:

    Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0
    (TID 7) (10.0.0.7 executor 1): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
        at …
"""

import re

_FAILED = re.compile(r"Lost task [^(]*\(TID \d+\) \((\S+) executor ([^)\s]+)\): (.*)", re.DOTALL)
_ERROR_OF_PYTHON = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit)\b.*$", re.MULTILINE)
# an exception that kseg itself raised in a task is a complete sentence
_KSEG_ERROR = re.compile(r"^kseg\.[\w.]+: (.+)$", re.MULTILINE)
_NOT_VISIBLE = re.compile(
    r"the node \S+ (?:does not see|has another|cannot read) [^\n]*\(a shared file system\)"
)
_JAVA_NAME = re.compile(r"^(?:[a-z]\w*\.)+\w+: ")

# failures of a node that cannot run our Python, independent of the target
_NODE_FAILURE = re.compile(r"ModuleNotFoundError|ImportError|Cannot run program|PYTHON_VERSION_MISMATCH")


def is_node_failure(error: Exception) -> bool:
    """Whether the failure would occur with every other target too."""
    return _NODE_FAILURE.search(_message(error)) is not None


def is_a_bug(error: Exception) -> bool:
    """Whether our own code raised an unexpected exception; otherwise a process or its machine is lost or cannot run it."""
    message = _message(error)
    return "Traceback (most recent call last)" in message and not _KSEG_ERROR.search(message)


def visibility_error(error: Exception) -> str | None:
    """The message about a node that does not see the files; None if that is not the cause."""
    found = _NOT_VISIBLE.search(_message(error))
    return None if found is None else found[0]


def reason(error: Exception) -> str:
    """Why Spark failed, in one line, with the host if it is known."""
    message = _message(error)
    failed = _FAILED.search(message)
    if failed is None:
        return _cause(message)
    host, executor, text = failed.groups()
    return f"{_cause(text)} (on {host}, executor {executor})"


def _message(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error)


def _cause(text: str) -> str:
    kseg_errors = _KSEG_ERROR.findall(text.split("\n\tat ")[0])
    if kseg_errors:
        return str(kseg_errors[-1])
    if "Traceback (most recent call last)" in text:
        raised = _ERROR_OF_PYTHON.findall(text.split("\n\tat ")[0].partition("Traceback")[2])
        if raised:
            return str(raised[-1])
    return _first_line(text)


def _first_line(message: str) -> str:
    line = next((line.strip() for line in message.splitlines() if line.strip()), "it did not say why")
    return _JAVA_NAME.sub("", line)
