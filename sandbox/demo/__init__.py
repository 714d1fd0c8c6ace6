"""The demo: runs the whole bridge on this machine, checks every change, and writes a report.

`command` is the command line and `demo_run` the sequence of steps. The writer and the bridge run in processes of their
own, so that the measuring process does nothing else. The demo writes all its files to one folder.
"""

from sandbox.demo.command import add_parser, run

__all__ = ["add_parser", "run"]
