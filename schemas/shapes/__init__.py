"""The shapes of the value record: what a change looks like to a consumer. `catalog` lists them and says how to add one.

A shape is one module with one object, a `Shape`. It chooses and arranges the parts that ``schemas.avro.records``
(schemas) and ``schemas.log.change_records`` (values) provide.
"""
