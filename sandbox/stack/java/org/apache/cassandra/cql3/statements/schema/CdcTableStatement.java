package org.apache.cassandra.cql3.statements.schema;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

import org.apache.cassandra.audit.AuditLogContext;
import org.apache.cassandra.auth.IResource;
import org.apache.cassandra.cql3.ColumnIdentifier;
import org.apache.cassandra.schema.KeyspaceMetadata;
import org.apache.cassandra.schema.Keyspaces;
import org.apache.cassandra.schema.Keyspaces.KeyspacesDiff;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.transport.Event.SchemaChange;
import scyllacdcbridge.local.CdcOptions;

/**
 * A CREATE or ALTER TABLE that also sets the table's CDC options, in one schema change.
 *
 * <p>It is in this package because a schema statement's event and resources are visible only here.
 */
public final class CdcTableStatement extends AlterSchemaStatement {
    private static final String EXTENSION = "cdc";
    private static final String LOG_SUFFIX = "_scylla_cdc_log";

    private final AlterSchemaStatement inner;
    private final String tableName;
    private final CdcOptions cdc;

    public CdcTableStatement(AlterSchemaStatement inner, CdcOptions cdc) {
        super(inner.keyspace());
        this.inner = inner;
        this.tableName = inner.getAuditLogContext().scope;
        this.cdc = cdc;
    }

    @Override
    public Keyspaces apply(Keyspaces schema) {
        Keyspaces changed = inner.apply(schema);
        KeyspaceMetadata keyspace = changed.getNullable(keyspaceName);
        TableMetadata table = keyspace == null ? null : keyspace.getTableNullable(tableName);
        boolean existedBefore = inner instanceof CreateTableStatement && tableOf(schema, tableName) != null;
        // IF EXISTS on a missing table and IF NOT EXISTS on a present one do nothing, as on ScyllaDB.
        if (table == null || existedBefore)
            return changed;
        if (cdc.enabled())
            refuseIfNotLoggable(schema, table);
        Map<String, ByteBuffer> extensions = new HashMap<>(table.params.extensions);
        extensions.put(EXTENSION, cdc.toBlob());
        TableMetadata withOptions = table.withSwapped(table.params.unbuild().extensions(extensions).build());
        return changed.withAddedOrUpdated(keyspace.withSwapped(keyspace.tables.withSwapped(withOptions)));
    }

    private void refuseIfNotLoggable(Keyspaces schema, TableMetadata table) {
        String name = keyspaceName + '.' + tableName;
        if (table.isCounter())
            throw ire("Cannot create CDC log for table %s. Counter support not implemented", name);
        if (tableName.endsWith(LOG_SUFFIX)) {
            TableMetadata base = tableOf(schema, tableName.substring(0, tableName.length() - LOG_SUFFIX.length()));
            if (base != null && CdcOptions.isEnabled(base.params.extensions.get(EXTENSION)))
                throw ire("Cannot create a CDC log for a table %s, because creating nested CDC logs is not allowed", name);
        }
        TableMetadata taken = tableOf(schema, tableName + LOG_SUFFIX);
        // Reuse a log that was detached when CDC was switched off.
        if (taken != null && taken.getColumn(new ColumnIdentifier("cdc$stream_id", true)) == null)
            throw ire("Cannot create CDC log table for table %s because a table of name %s already exists", name, name + LOG_SUFFIX);
    }

    private TableMetadata tableOf(Keyspaces schema, String table) {
        KeyspaceMetadata keyspace = schema.getNullable(keyspaceName);
        return keyspace == null ? null : keyspace.getTableNullable(table);
    }

    @Override
    public void validate(ClientState state) {
        super.validate(state);
        inner.validate(state);
    }

    @Override
    public void authorize(ClientState state) {
        inner.authorize(state);
    }

    @Override
    SchemaChange schemaChangeEvent(KeyspacesDiff diff) {
        return inner.schemaChangeEvent(diff);
    }

    @Override
    Set<IResource> createdResources(KeyspacesDiff diff) {
        return inner.createdResources(diff);
    }

    @Override
    Set<String> clientWarnings(KeyspacesDiff diff) {
        return inner.clientWarnings(diff);
    }

    @Override
    public AuditLogContext getAuditLogContext() {
        return inner.getAuditLogContext();
    }
}
