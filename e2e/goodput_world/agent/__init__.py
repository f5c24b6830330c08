"""The simulated nodes of the embedded world: what kubelet, kube-proxy and cluster DNS do, in one process for all nodes.

Containers are real local processes in a private mount namespace; pod IPs and ClusterIPs are loopback addresses.
Start it with `python -m goodput_world.agent --kubeconfig K --config nodes.json --directory D`.
"""
