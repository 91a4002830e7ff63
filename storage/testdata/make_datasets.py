"""Make the datasets of dataset_test.go with pyarrow: python make_datasets.py

Every file holds the same rows in another type or container. Made with the
pyarrow version named in the files' own metadata.
"""

import datetime
import decimal
import os

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "datasets")
os.makedirs(out, exist_ok=True)

N = 300
prompts = [None if i % 50 == 7 else "" if i % 50 == 8 else f"def größe_{i}(x):\n" * (i % 4 + 1) for i in range(N)]
ids = [f"Demo/{i}" for i in range(N)]


def table(text, id_type=pa.string(), **more):
    cols = {"task_id": pa.array(ids, id_type), "prompt": pa.array(prompts).cast(text) if not pa.types.is_dictionary(text) else pa.array(prompts).dictionary_encode()}
    cols.update(more)
    return pa.table(cols)


def stream(name, t, **options):
    with pa.OSFile(os.path.join(out, name), "wb") as f:
        with pa.ipc.new_stream(f, t.schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
            w.write_table(t, max_chunksize=64)


def ipc_file(name, t, **options):
    with pa.OSFile(os.path.join(out, name), "wb") as f:
        with pa.ipc.new_file(f, t.schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
            w.write_table(t, max_chunksize=64)


def parquet(name, t, **options):
    pq.write_table(t, os.path.join(out, name), **{"row_group_size": 70, "compression": "zstd", **options})


rich = dict(
    number=pa.array(range(N), pa.int64()),
    unsigned=pa.array([2**64 - 1 - i for i in range(N)], pa.uint64()),
    ratio=pa.array([i / 8 for i in range(N)]),
    flag=pa.array([i % 2 == 0 for i in range(N)]),
    day=pa.array([datetime.date(2024, 1, 1)] * N),
    at=pa.array([datetime.datetime(2024, 1, 1, 12)] * N, pa.timestamp("us")),
    price=pa.array([decimal.Decimal("1.25")] * N),
    tests=pa.array([["a", "b"]] * N),
    meta=pa.array([{"x": 1, "y": "z"}] * N),
    nothing=pa.array([None] * N, pa.string()),
)

parquet("string.parquet", table(pa.string()))
parquet("large.parquet", table(pa.large_string(), pa.large_string()))
parquet("view.parquet", table(pa.string_view()))
parquet("binary.parquet", table(pa.binary()))
parquet("dictionary.parquet", table(pa.dictionary(pa.int32(), pa.string())))
parquet("rich.parquet", table(pa.string(), **rich), data_page_version="2.0", compression="snappy")
parquet("delta.parquet", table(pa.string()), use_dictionary=False, column_encoding={"task_id": "DELTA_BYTE_ARRAY", "prompt": "DELTA_LENGTH_BYTE_ARRAY"}, compression="gzip")
ipc_file("string.arrow", table(pa.string()))
ipc_file("lz4.arrow", table(pa.large_string(), **rich), compression="lz4")
ipc_file("view.arrow", table(pa.string_view()))
feather.write_feather(table(pa.string()), os.path.join(out, "zstd.feather"), compression="zstd")
ipc_file("dictionary.arrow", table(pa.dictionary(pa.int32(), pa.string())))
stream("string.arrows", table(pa.string()))
stream("dictionary.arrows", table(pa.dictionary(pa.int32(), pa.string())), emit_dictionary_deltas=True, compression="zstd")

# Not among the others: the reader does not know the encoding of a column that nobody needs.
os.makedirs(os.path.join(out, "..", "unread"), exist_ok=True)
pq.write_table(
    table(pa.string(), embedding=pa.array([i / 8 for i in range(N)], pa.float32())),
    os.path.join(out, "..", "unread", "split.parquet"),
    use_dictionary=["task_id", "prompt"],
    column_encoding={"embedding": "BYTE_STREAM_SPLIT"},
    compression="zstd",
)
