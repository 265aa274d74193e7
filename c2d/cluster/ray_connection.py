"""Ray, embedded in this process or at an address: connecting, the living nodes, why a process died.

The only file that imports Ray; others take it from here, and import this file when they need it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from c2d.agents.build import available_memory
from c2d.cluster.address import LOOPBACK
from c2d.cluster.embedded_ray import private_directory
from c2d.errors import UserError

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # of an embedded Ray: the same priority as `c2d train`
try:
    import ray
    import ray.exceptions
except ImportError:
    raise UserError("sweeps and actors run on Ray, which is not installed: pip install 'c2d[cluster]'") from None
if not hasattr(ray.exceptions, "AuthenticationError"):
    raise UserError(f"Ray {ray.__version__} has no tokens; accepted: 2.52 or later: pip install 'c2d[cluster]'")

__all__ = ["NODE_DIED", "connected", "failure_reason", "last_line", "living_nodes", "ray"]

STORE = 256 << 20  # bytes of shared memory of an embedded Ray: runs that share the disk send next to nothing


@contextmanager
def connected(address: str | None, cores: int | None = None, store: int = STORE) -> Iterator[None]:
    """Ray, embedded or at an address. A Ray that this process already uses is kept if it is the requested one.

    An embedded one has `cores`, by default those of the machine, and this much shared memory.
    """
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if address != current:
            wanted = address or "an embedded one"
            raise UserError(f"this process already uses Ray at {current}, not {wanted}: call ray.shutdown() first")
        yield
        return
    with ExitStack() as stack:
        try:
            if address is None:
                stack.callback(_reload_token)
                directory = stack.enter_context(private_directory())
                _reload_token()
                stack.callback(ray.shutdown)
                _start_embedded(directory, cores, store)
            else:
                stack.callback(ray.shutdown)
                _connect(address)
        except UserError:
            raise
        except Exception as error:  # Ray raises errors of many kinds, plain Exception among them
            where = f"the cluster at {address}" if address else "an embedded Ray"
            raise UserError(f"{where} could not be used: {' '.join(str(error).split())[:300]}") from None
        yield


def _connect(address: str) -> None:
    """Ray writes the cause of a failure to standard error and does not put it into the exception."""
    try:
        with _without_stderr():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise UserError(
            f"cannot connect to a Ray cluster at {address}: it is not one, or it requires a token; with a token, set "
            "RAY_AUTH_MODE=token and put it into ~/.ray/auth_token (`ray get-auth-token` on the head node prints it)"
        ) from None


def _start_embedded(directory: str, cores: int | None, store: int) -> None:
    """Reachable only by this user on this machine, without a dashboard; it always ends with this process."""
    own = len(os.sched_getaffinity(0))
    ray.init(
        address="local",
        num_cpus=max(own, cores or 1),
        include_dashboard=False,
        object_store_memory=store,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _memory=max(available_memory() - store, 1 << 20),
        _node_ip_address="127.0.0.1",
        _temp_dir=directory,
    )
    if (address := ray.util.get_node_ip_address()) != "127.0.0.1":
        ray.shutdown()
        raise UserError(f"Ray would listen at {address}, beyond this machine: set {LOOPBACK}=0 before importing ray")


def _reload_token() -> None:
    """Make Ray read the variables of its token again; it keeps the first values for the life of the process."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Discards standard error, including that of compiled code."""
    sys.stderr.flush()
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


# ------------------------------------------------------------------------------------------------ nodes and failures


def living_nodes() -> list[dict[str, float]]:
    """The resources of each."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


_OUT_OF_MEMORY = ("OutOfMemory", "memory pressure", "running low on memory")
NODE_DIED = "its node died"
_NODE_DEATHS = ("node has died", "node is dead", "node was terminated")


def failure_reason(error: Exception) -> str:
    """Why a process died, in a few words, from Ray's error."""
    text = str(error)
    if any(words in text or words in type(error).__name__ for words in _OUT_OF_MEMORY):
        return "killed by Ray because memory ran out"
    if any(words in text for words in _NODE_DEATHS):
        return NODE_DIED
    if "creation task" in text or "__init__" in text:
        return f"it could not be started: {last_line(error)}"
    return "its process was killed (the system does that when memory runs out)"


def last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
