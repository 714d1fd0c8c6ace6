"""Recorded output of a real ScyllaDB node, small enough to ship: what the bridge reads, checked against the genuine.

The recordings were made with ScyllaDB 5.2.18 (one node of 2 shards and 16 vnodes); `trim` says how they were cut down.
"""
