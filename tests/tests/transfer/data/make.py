"""Makes the files of Parquet beside this one, as another program writes them: with pyarrow 26.0.1.

The tests read the files, so that they need no Python: `python3 make.py` is for whoever changes them.
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent
FAR = 4_102_444_800_000  # the year 2100


def write(name: str, columns: dict[str, pa.Array], **how: object) -> None:
    pq.write_table(pa.table(columns), HERE / name, **how)


# Three groups of rows, a dictionary, cells that are null, and checksums of pages.
COUNT = 10
films = {
    "film": pa.array(range(COUNT), pa.uint32()),
    "title": pa.array([None if n == 3 else f"film {n % 4}" for n in range(COUNT)]).dictionary_encode(),
    "embedding": pa.array([[n, n / 2, -0.25] for n in range(COUNT)], pa.list_(pa.float32(), 3)),
    "score": pa.array([None if n % 3 == 0 else n / 8 for n in range(COUNT)], pa.float64()),
    "seen": pa.array([n % 2 == 0 for n in range(COUNT)]),
    "genres": pa.array([["a", "b"], [], None, ["ü"]] + [["c"]] * (COUNT - 4), pa.list_(pa.string())),
    "director": pa.array(
        [{"name": "Ada", "born": 1900 + n} for n in range(COUNT - 1)] + [{"name": None, "born": None}],
        pa.struct([("name", pa.string()), ("born", pa.int16())]),
    ),
    "added": pa.array([1_000 * n for n in range(COUNT)], pa.timestamp("ms")),
    "expires_at_ms": pa.array([None] * 7 + [FAR, 1, None], pa.int64()),
    "sparse_indices": pa.array([[1, 4_000_000_000]] + [None] * (COUNT - 1), pa.list_(pa.uint32())),
    "sparse_values": pa.array([[0.5, -2.0]] + [None] * (COUNT - 1), pa.list_(pa.float64())),
}
write("films.parquet", films, row_group_size=4, write_page_checksum=True)

# Points that are no points, each for another reason.
write(
    "refused.parquet",
    {
        "id": pa.array([1, 2, -3, None, 5, 6, 7], pa.int64()),
        "vector": pa.array([[1, 2], None, [1, 2], [1, 2], [1, None], [1], [float("nan"), 1]], pa.list_(pa.float64())),
        "name": pa.array([b"good"] + [None] * 5 + [b"\xff"], pa.binary()),
    },
    compression="none",
)

# Texts as ids, doubles, lists of a fixed length, gzip, and a column of each space under another name.
write(
    "scenes.parquet",
    {
        "id": pa.array(["a", "b", "ü"]),
        "picture": pa.array([[1, 0.5], None, [0, -1]], pa.list_(pa.float64())),
        "sound": pa.array([[7], [8], None], pa.list_(pa.float64(), 1)),
        "film": pa.array(["Ran", None, "Alien"], pa.large_string()),
    },
    compression="gzip",
    use_dictionary=False,
)

# Lists of lists, LZ4, and pages of the second version.
write(
    "papers.parquet",
    {
        "id": pa.array([1, 2], pa.uint64()),
        "tokens": pa.array([[[1, 0], [0, 1]], [[0.5, 0.25]]], pa.list_(pa.list_(pa.float32()))),
        "title": pa.array(["Pooling", None]),
    },
    compression="lz4",
    data_page_version="2.0",
)

# Keys, of which the last but one has no value, and the last one expired long ago.
write(
    "keys.parquet",
    {
        "key": pa.array([b"a", b"\xff\x00", b"c", b"d"], pa.binary()),
        "value": pa.array(["1", "", None, "4"]),
        "expires_at_ms": pa.array([FAR, None, None, 5], pa.int64()),
    },
)

write("zstd.parquet", {"id": pa.array([1]), "vector": pa.array([[1.0, 2.0]])}, compression="zstd")
