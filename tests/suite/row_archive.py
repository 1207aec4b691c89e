"""Reads the Parquet files of the archived parts of a table with pyarrow. Argument: the folder of the table."""

import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(sys.argv[1])

rows = {}
for part in ("part=2024-01", "part=2024-02"):
    files = sorted((FOLDER / part).glob("*.parquet"))
    assert files, part
    for file in files:
        # The partition in the path is not a column of the file.
        table = pq.ParquetFile(file).read()
        types = {field.name: getattr(field.type, "storage_type", field.type) for field in table.schema}
        assert types == {
            "_key": pa.binary(), "_time": pa.timestamp("ns", "UTC"), "n": pa.uint64(), "at": pa.timestamp("ns", "UTC"),
            "state": pa.string(), "total": pa.string(), "rate": pa.float64(), "paid": pa.bool_(), "doc": pa.string(),
            "raw": pa.binary(), "_columns": pa.string(), "_row": pa.binary(),
        }, types
        keys = table.column("_key").to_pylist()
        assert keys == sorted(keys)
        for row in table.select([name for name in types if name not in ("_time", "at")]).to_pylist():
            rows[row["n"]] = row
assert len(rows) == 3000, len(rows)
for n, row in rows.items():
    assert row["state"] == ("open" if n % 3 == 0 else "done")
    assert row["total"] == f"{n}.05" and row["rate"] == n / 4 and row["paid"] == (n % 2 == 0)
    assert json.loads(row["doc"]) == {"n": [n]} and row["raw"] == b"\x00\xff"
    others = json.loads(row["_columns"]) if row["_columns"] else {}
    assert others.get("color") == ("red" if n % 100 == 7 else None)
    assert (row["_row"] is not None) == bool(others), n
print(f"{len(rows)} archived rows were read")
