"""Why a process is gone, from what Ray says of it, in few words."""

from __future__ import annotations

_OF_MEMORY = ("OutOfMemory", "memory pressure", "running low on memory")
NODE_DIED = "its node died"
_OF_NODES = ("node has died", "node is dead", "node was terminated")


def why(error: Exception) -> str:
    """A node's or a process's death."""
    text = str(error)
    if any(words in text or words in type(error).__name__ for words in _OF_MEMORY):
        return "ended by Ray because memory ran out"
    if any(words in text for words in _OF_NODES):
        return NODE_DIED
    if "creation task" in text or "__init__" in text:
        return f"it could not be started: {last_line(error)}"
    return "its process was killed (the system does that when memory runs out)"


def too_often(reason: str, deaths: int, retries: int) -> str:
    """Why a run is not started once more."""
    allowed = f"{retries} {'retry was' if retries == 1 else 'retries were'} allowed"
    return f"{reason}{f', {deaths} times' * (deaths > 1)}, and {allowed}"


def last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
