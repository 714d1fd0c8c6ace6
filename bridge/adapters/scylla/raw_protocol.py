"""Results of the native protocol with their cells left as bytes.

The driver's own types can't hold every CQL value (a timestamp beyond year 9999, for one), and they rename columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, ClassVar, Final

from cassandra import DriverException
from cassandra.cluster import Cluster
from cassandra.protocol import ResultMessage, _ProtocolHandler

from bridge.adapters.scylla.result_columns import ResultRows, known_metadata, result_columns

_INT: Final = Struct(">i")
_SHORT: Final = Struct(">H")
_TWO_INTS: Final = Struct(">ii")


class LargeReadConnection(Cluster.connection_class):  # type: ignore[misc]  # the driver has no types
    """A connection that reads 64 KiB at a time; the driver reads 4 KiB, which is about 30 log rows."""

    in_buffer_size = 1 << 16


class RawResultMessage(ResultMessage):  # type: ignore[misc]  # the driver has no types
    """A result whose cells stay bytes, and whose columns come from the result itself.

    With ScyllaDB's extension SCYLLA_USE_METADATA_ID, and with protocol 5, the driver keeps the metadata of a prepared
    statement and asks the server to omit the metadata from the pages. If a page were decoded with the columns of
    another page, its values would be wrong without an error. This class drops every metadata id, because the server
    always sends the metadata for a statement without an id.
    """

    def recv_results_prepared(
        self, f: Any, protocol_version: int, protocol_features: object, user_type_map: Mapping[str, Any]
    ) -> None:
        """Read the answer to PREPARE and drop its metadata id."""
        super().recv_results_prepared(f, protocol_version, protocol_features, user_type_map)
        self.result_metadata_id = None

    def recv_results_rows(
        self,
        f: Any,
        protocol_version: int,
        user_type_map: Mapping[str, Any],
        result_metadata: Sequence[Any] | None,
        column_encryption_policy: object,
    ) -> None:
        """Read a page: its paging state, its columns, and where its rows begin.

        Raises:
            DriverException: the page has no metadata.
        """
        begin = f.tell()
        body = f.read()
        flags, count = _TWO_INTS.unpack_from(body, 0)
        if flags & self._NO_METADATA_FLAG:
            raise DriverException("the server left a result's columns out although it was asked for them")
        at = _TWO_INTS.size
        if flags & self._HAS_MORE_PAGES_FLAG:
            (length,) = _INT.unpack_from(body, at)
            at += 4
            if length >= 0:
                self.paging_state = body[at : at + length]
                at += length
        if flags & self._METADATA_ID_FLAG:
            (length,) = _SHORT.unpack_from(body, at)
            at += 2 + length
        table_flag = flags & self._FLAGS_GLOBAL_TABLES_SPEC
        found = known_metadata.find(table_flag, count, body, at)
        if found is None:
            f.seek(begin)
            self.recv_results_metadata(f, user_type_map)
            self.result_metadata_id = None
            columns = result_columns(self.column_metadata or ())
            end = f.tell() - begin
            known_metadata.add(table_flag, count, body[at:end], columns)
        else:
            columns, end = found
        self.column_names = columns.names
        self.column_types = columns.driver_types
        self.parsed_rows = ResultRows(body, end, columns)


class RawProtocolHandler(_ProtocolHandler):  # type: ignore[misc]  # the driver has no types
    """The driver's protocol handler, with `RawResultMessage` for results."""

    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: RawResultMessage,
    }
