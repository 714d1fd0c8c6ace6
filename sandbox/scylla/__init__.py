"""A simulator of ScyllaDB's CDC: base tables and log rows on any CQL server, written as ScyllaDB writes them.

It follows the spec (sections 1 to 5) and shares no code with the reader that it checks, except for the layout of
stream ids and timeuuids.
"""
