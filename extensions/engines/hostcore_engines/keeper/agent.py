"""The command line of torchrun's agents."""

from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen(kw_only=True)
class Agent:
    """Settings shared by all agents of a launch."""

    #: The program, with arguments.
    torchrun: Sequence[str]
    #: The run's name among the agents that meet at one place.
    rendezvous_id: str
    #: The fewest nodes to go on with.
    min_nodes: int
    nodes: int
    ranks_per_node: int
    #: How often the ranks are started again.
    max_restarts: int
    #: Meeting point of the agents: the address of node 0. Empty: the address that node 0 finds for itself.
    host: str = ""
    #: 0: a free one, which node 0 finds.
    port: int = 0
    #: Addresses of the nodes for the other nodes; None: the address that the node finds for itself.
    addresses: Sequence[str | None] = ()
    #: See ``rdzv_conf`` in torchrun's documentation.
    rendezvous: Mapping[str, str] = attrs.field(factory=dict)

    def address(self, node: int) -> str | None:
        """Return the address of a node for the others, as far as the launcher knows."""
        return self.addresses[node] if node < len(self.addresses) else None

    def command(self, node: int, *, host: str, port: int | str, address: str | None, rank: Sequence[str]) -> list[str]:
        """The arguments that start the agent of a node.

        :param host: Where the agents meet.
        :param address: How this node is reached.
        :param rank: Starts a rank. torchrun replaces ``$`` in it, so it holds nothing of the user's.
        """
        # Node 0 alone serves the store: of two agents on one machine, torchrun would let the quicker one do it.
        conf = {"is_host": "1" if node == 0 else "0", **self.rendezvous}
        local = [f"--local-addr={address}"] if address else []
        return [
            *self.torchrun,
            f"--nnodes={self.min_nodes}:{self.nodes}",
            f"--nproc-per-node={self.ranks_per_node}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}:{port}",
            f"--rdzv-id={self.rendezvous_id}",
            f"--rdzv-conf={','.join(f'{name}={value}' for name, value in conf.items())}",
            f"--max-restarts={self.max_restarts}",
            *local,
            "--no-python",
            *rank,
        ]
