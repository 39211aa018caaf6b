"""Encryption, bitmaps, geometries and vectors."""

from __future__ import annotations

from millpond.sql.functions.base import Function

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("aes_decrypt", "Bytes decrypted by AES with a key, optionally with mode, padding and further data.",
        "CAST(aes_decrypt(aes_encrypt('a', '0123456789abcdef'), '0123456789abcdef') AS STRING) = 'a'",
        arity="2-5"),
    Function("aes_encrypt",
        "Bytes encrypted by AES with a key, optionally with mode, padding and initialization vector.",
        "aes_encrypt('a', '0123456789abcdef') IS NOT NULL", arity="2-6"),
    Function("bitmap_bit_position", "The bit, in its bitmap, that stands for a number.",
        "bitmap_bit_position(1) = 0", arity="1"),
    Function("bitmap_bucket_number", "The number of the bitmap that contains a number.", "bitmap_bucket_number(1) = 1",
        arity="1"),
    Function("bitmap_count", "How many bits of a bitmap are set.", "bitmap_count(X'0F') = 4", arity="1"),
    Function("st_asbinary", "A geometry as bytes (WKB).",
        "st_asbinary(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')) = "
        "X'0101000000000000000000F03F0000000000000040'", arity="1-2"),
    Function("st_geogfromwkb", "A geography of bytes (WKB).",
        "st_srid(st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')) = 4326", arity="1"),
    Function("st_geomfromwkb", "A geometry of bytes (WKB), optionally with a reference system.",
        "st_srid(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')) = 0", arity="1-2"),
    Function("st_setsrid", "A geometry with another reference system.",
        "st_srid(st_setsrid(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040'), 3857)) = 3857",
        arity="2"),
    Function("st_srid", "The number of the reference system of a geometry.",
        "st_srid(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')) = 0", arity="1"),
    Function("try_aes_decrypt", "As aes_decrypt, but NULL for what cannot be decrypted.",
        "try_aes_decrypt(X'00', '0123456789abcdef') IS NULL", arity="2-5"),
    Function("vector_cosine_similarity", "The cosine of the angle between two vectors.",
        "vector_cosine_similarity(array(1F, 0F), array(1F, 0F)) = 1", arity="2"),
    Function("vector_inner_product", "The inner product of two vectors.",
        "vector_inner_product(array(1F, 2F), array(3F, 4F)) = 11", arity="2"),
    Function("vector_l2_distance", "The distance between two vectors.",
        "vector_l2_distance(array(0F, 0F), array(3F, 4F)) = 5", arity="2"),
    Function("vector_norm", "The length of a vector.", "vector_norm(array(3F, 4F)) = 5", arity="1-2"),
    Function("vector_normalize", "The vector brought to the length 1.",
        "vector_normalize(array(2F, 0F)) = array(1F, 0F)", arity="1-2"),
)
# fmt: on
