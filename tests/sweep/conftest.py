"""One small Ray cluster on this machine for all tests of sweeps: a head without room, and nodes that can be killed."""

import os
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A head without room and a node with room for one run; `add` starts another node."""
    os.environ["C2D_TEST_FLAG"] = str(tmp_path_factory.mktemp("flag") / "killed")
    import ray
    from ray.cluster_utils import Cluster

    quick = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    room = {"object_store_memory": 80 << 20, "include_dashboard": False}
    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.1", "_system_config": quick, **room},
    )

    def add(places, address):
        return nodes.add_node(num_cpus=places, memory=8 << 30, node_ip_address=address, **room)

    add(1, "127.0.0.2")
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield SimpleNamespace(address=nodes.address, add=add)
    ray.shutdown()
    nodes.shutdown()
