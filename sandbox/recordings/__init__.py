"""Recorded output of a real ScyllaDB node, small enough to ship. Tests check the bridge and the simulator against it.

The recordings come from ScyllaDB 5.2.18 (one node with 2 shards and 16 vnodes). `trim` describes what was left out.
"""
