"""Queries the Parquet files of the archived parts of a table with DuckDB. Argument: the folder of the table."""

import datetime
import decimal
import sys

import duckdb

FILES = f"read_parquet('{sys.argv[1]}/part=*/*.parquet', hive_partitioning = true)"
ROWS = 3000

connection = duckdb.connect()
connection.execute("set TimeZone = 'UTC'")


def rows(query):
    return connection.execute(query.format(files=FILES)).fetchall()


types = {name: kind for name, kind, *_ in rows("describe select * from {files}")}
assert types["n"] == "UBIGINT" and types["at"].startswith("TIMESTAMP"), types
assert types["state"] == "VARCHAR" and types["rate"] == "DOUBLE" and types["paid"] == "BOOLEAN", types
assert types["raw"] == "BLOB" and types["_key"] == "BLOB", types

# Aggregates over all parts, and per part by the name of its folder.
count, total, rate, paid = rows(
    "select count(*), sum(cast(total as decimal(18, 2))), sum(rate), count(*) filter (paid) from {files}"
)[0]
assert count == ROWS and paid == ROWS // 2, (count, paid)
assert total == sum(decimal.Decimal(f"{n}.05") for n in range(ROWS)), total
assert rate == sum(n / 4 for n in range(ROWS)), rate
parts = rows('select part, count(*), min("at"), max("at") from {files} group by part order by part')
assert [(str(part)[:7], count) for part, count, *_ in parts] == [("2024-01", 1500), ("2024-02", 1500)], parts
for month, (_, _, first, last) in enumerate(parts, 1):
    expected = datetime.datetime(2024, month, 7, 8, tzinfo=datetime.timezone.utc)
    assert first == last == expected, (first, last)

# Conditions on keys, columns, JSON, and columns that are not declared.
assert rows("select state, paid, raw from {files} where n = 6") == [("open", True, b"\x00\xff")]
assert rows("select count(*) from {files} where state = 'open' and n >= 1500")[0][0] == 500
documents = rows("select count(*) from {files} where json_extract(doc, '$.n[0]')::ubigint = n")
assert documents[0][0] == ROWS, documents
colors = rows("select n from {files} where json_extract_string(_columns, '$.color') = 'red' order by n")
assert [n for (n,) in colors] == [n for n in range(ROWS) if n % 100 == 7], len(colors)

# The rows of a file are in the order of their keys.
disorder = rows(
    "select count(*) from (select _key, lag(_key) over (partition by filename order by file_row_number) as before "
    "from read_parquet('" + sys.argv[1] + "/part=*/*.parquet', filename = true, file_row_number = true)) "
    "where before >= _key"
)
assert disorder[0][0] == 0, disorder
print(f"{count} archived rows were queried")
