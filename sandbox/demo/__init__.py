"""The demo: the whole bridge on this machine, checked change by change while it runs, and a report of it.

`command` is its command line and `run` its course. The writer and the bridge are processes of their own, so that the
process that measures does nothing else. Everything that the demo writes lies in one folder.
"""

from sandbox.demo.command import add_parser, run

__all__ = ["add_parser", "run"]
