"""CQL for the local stack: statements carried out on its server, and logged there as ScyllaDB logs them.

`source` cuts a text into statements, `stored` reads back what the server holds, and `client` carries out.
"""
