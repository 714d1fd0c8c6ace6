"""The command `scylla-cdc-bridge`: runs a subcommand and turns errors into messages and exit statuses.

Exit statuses: 0 done; 1 failed while running; 2 refused before anything was written (a bad file, an unreachable server,
wrong credentials, a table that is not captured, a bad command line).
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from bridge.cli.parser import PROGRAM, build_parser
from bridge.errors import BridgeError, ConfigError, StartupError
from bridge.runtime import log_setup
from schemas.errors import SchemaError

if TYPE_CHECKING:
    import argparse

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
EXIT_INTERRUPTED: Final = 130
_WRITE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Args:
        argv: the arguments after the program's name; None for those of this process.
    """
    log_setup.replace_closed_streams()
    command_line = list(sys.argv[1:] if argv is None else argv)
    # The parser may fail itself, so the level is looked up without it.
    debug = not {"debug", "--log-level=debug"}.isdisjoint(command_line)
    try:
        return _run_command(command_line)
    except SystemExit as ended:  # argparse has printed the reason
        return ended.code if isinstance(ended.code, int) else EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has closed its end, as `| head` does. Python would report the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (ConfigError, StartupError) as error:
        return _report_error(error, EXIT_REFUSED, debug=debug)
    except OSError as error:
        if error.errno not in _WRITE_ERRORS or error.filename is not None:
            return _report_error(error, EXIT_FAILED, debug=debug)
        unwritable = BridgeError(f"standard output can't be written: {error.strerror}")
        return _report_error(unwritable, EXIT_FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001  # the one place that shows errors to a person
        return _report_error(error, EXIT_FAILED, debug=debug)


def _run_command(command_line: list[str]) -> int:
    arguments = build_parser(command_line).parse_args(command_line)
    log_setup.setup(getattr(arguments, "log_level", "warning"))
    command: Callable[[argparse.Namespace], int] = arguments.function
    return command(arguments)


def _report_error(error: Exception, status: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    text = str(error)
    if not isinstance(error, BridgeError | SchemaError):
        text = f"{type(error).__name__}: {text} (please report this; --log-level debug shows where it comes from)"
    for line in text.splitlines() or [type(error).__name__]:
        sys.stderr.write(f"{PROGRAM}: error: {line}\n")
    return status


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.exit(code)
