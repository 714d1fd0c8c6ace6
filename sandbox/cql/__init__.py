"""CQL statements, as far as a writer sends them, turned into the simulator's mutations. Pure.

`lexer` cuts the text into tokens, `grammar` makes `statements` of them, `catalog` keeps what DDL has made, `literals`
serializes values, and `interpret` works out which mutations a statement is.
"""
