"""Reads exported rows with pyarrow, and imports files that pyarrow has written. Argument: the URL of the server."""

import decimal
import io
import json
import sys
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq

SERVER = sys.argv[1]
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"


def post(path, body, content_type="application/json", accept="application/json"):
    headers = {"content-type": content_type, "accept": accept}
    request = urllib.request.Request(SERVER + path, data=body, headers=headers)
    with urllib.request.urlopen(request) as response:
        return response.read()


def scan(table, accept, query=""):
    return post(f"/v1/tables/{table}/rows/scan{query}", b'{"allow_scan": true}', accept=accept)


rows = [
    {
        "op": "put",
        "key": {"id": "a", "n": 2**64 - 1},
        "columns": {
            "total": "12345678901234567890.05", "at": "2026-11-20T12:00:00.000000001Z", "raw": "AP8=", "paid": True,
            "rate": 0.1, "doc": {"a": [1]}, "color": "red",
        },
    },
    {"op": "put", "key": {"id": "b", "n": 0}},
]
post("/v1/tables/source/rows", json.dumps({"rows": rows}).encode())

stream = pa.ipc.open_stream(scan("source", ARROW)).read_all()
file = pq.read_table(io.BytesIO(scan("source", PARQUET)))
for table in (stream, file):
    assert table.num_rows == 2, table
    types = {field.name: field.type for field in table.schema}
    assert types == {
        "id": pa.string(), "n": pa.uint64(), "total": pa.string(), "at": pa.timestamp("ns", "UTC"), "raw": pa.binary(),
        "paid": pa.bool_(), "rate": pa.float64(), "doc": pa.string(), "*": pa.string(),
    }, types
    first = {name: table.column(name)[0] for name in types}
    assert first["n"].as_py() == 2**64 - 1
    assert first["total"].as_py() == "12345678901234567890.05"
    assert first["at"].value == 1795176000000000001, first["at"].value
    assert first["raw"].as_py() == b"\x00\xff"
    assert first["paid"].as_py() is True and first["rate"].as_py() == 0.1
    assert json.loads(first["*"].as_py()) == {"color": "red"}
    assert all(table.column(name)[1].as_py() is None for name in types if name not in ("id", "n"))

decimals = pa.ipc.open_stream(scan("source", ARROW, "?decimal_scale=2")).read_all()
assert decimals.schema.field("total").type == pa.decimal128(38, 2)
assert decimals.column("total")[0].as_py() == decimal.Decimal("12345678901234567890.05")

# Types of other tools: milliseconds, small integers, decimals, large texts.
table = pa.table(
    {
        "id": pa.array(["x", "y", "z"], pa.large_string()),
        "n": pa.array([1, 2, 3], pa.int16()),
        "total": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-3.00")], pa.decimal128(12, 2)),
        "at": pa.array([1000, None, 3], pa.timestamp("ms")),
        "raw": pa.array([b"\x00", None, b""], pa.binary()),
        "rate": pa.array([float("nan"), 1.5, None], pa.float32()),
        "size": pa.array([7, None, 9], pa.uint8()),
    }
)
sink = io.BytesIO()
with pa.ipc.new_stream(sink, table.schema) as writer:
    writer.write_table(table, max_chunksize=2)
buffer = io.BytesIO()
pq.write_table(table, buffer)
results = []
for name, content_type, body in (("stream", ARROW, sink.getvalue()), ("file", PARQUET, buffer.getvalue())):
    lines = post(f"/v1/tables/{name}/rows/import", body, content_type=content_type).decode().splitlines()
    end = json.loads(lines[-1])
    assert end["written"] == 3 and end["refused"] == 0, lines
    results.append(json.loads(scan(name, "application/json"))["rows"])
expected = [
    {"key": {"id": "x", "n": 1}, "columns": {
        "total": "1.1", "at": "1970-01-01T00:00:01Z", "raw": "AA==", "rate": "NaN", "size": {"type": "u64", "value": 7}}},
    {"key": {"id": "y", "n": 2}, "columns": {"rate": 1.5}},
    {"key": {"id": "z", "n": 3}, "columns": {
        "total": "-3", "at": "1970-01-01T00:00:00.003Z", "raw": "", "size": {"type": "u64", "value": 9}}},
]
assert results == [expected, expected], results
print("both formats were read and imported")
