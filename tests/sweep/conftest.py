"""A small Ray cluster on this machine: a head without room, and nodes that can be killed."""

import os
import signal

import pytest


class Nodes:
    """Nodes with room for one run each, by their addresses."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        quick = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500,
                 "health_check_failure_threshold": 3}  # fmt: skip
        self._room = {
            "object_store_memory": 80 << 20,
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,
        }
        self._nodes = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.1", "_system_config": quick, **self._room},
        )
        self._raylets = {}
        self.address = self._nodes.address

    def add(self):
        address = f"127.0.0.{len(self._raylets) + 2}"
        node = self._nodes.add_node(num_cpus=1, memory=8 << 30, node_ip_address=address, **self._room)
        self._raylets[address] = node.all_processes["raylet"][0].process.pid

    def kill(self, address):
        os.kill(self._raylets[address], signal.SIGKILL)

    def end(self):
        self._nodes.shutdown()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster with one node, to which this process is connected; faulty environments look at `marks`."""
    import ray

    marks = tmp_path_factory.mktemp("marks")
    os.environ["C2D_TEST_MARKS"] = str(marks)  # workers inherit it
    nodes = Nodes()
    nodes.marks = marks
    nodes.add()
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.end()
    del os.environ["C2D_TEST_MARKS"]
