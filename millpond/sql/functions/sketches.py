"""Sketches of Apache DataSketches, which Spark's functions keep and read: how many, which, how often, about."""

from __future__ import annotations

from millpond.sql.functions.base import Aggregate, Function

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("approx_top_k_estimate", "The most frequent values of a sketch of approx_top_k_accumulate.",
        "size(approx_top_k_estimate(approx_top_k_accumulate(g), 1)) = 1", arity="1-2"),
    Aggregate("hll_sketch_agg", "A HyperLogLog sketch of the values.",
        "hll_sketch_estimate(hll_sketch_agg(k)) = 4", arity="1-2"),
    Function("hll_sketch_estimate", "How many different values a HyperLogLog sketch has, about.",
        "hll_sketch_estimate(hll_sketch_agg(k)) = 4", arity="1"),
    Function("hll_union", "One HyperLogLog sketch of two.",
        "hll_sketch_estimate(hll_union(hll_sketch_agg(k), hll_sketch_agg(k + 4))) = 8", arity="2-3"),
    Aggregate("hll_union_agg", "One HyperLogLog sketch of those of all rows.",
        "SELECT hll_sketch_estimate(hll_union_agg(s)) = 4 FROM (SELECT hll_sketch_agg(k) AS s FROM t "
        "GROUP BY g)", arity="1-2"),
    Aggregate("kll_merge_agg_bigint", "One KLL sketch, of BIGINT, of those of all rows.",
        "SELECT kll_sketch_get_n_bigint(kll_merge_agg_bigint(s)) = 4 FROM (SELECT "
        "kll_sketch_agg_bigint(bigint(k)) AS s FROM t GROUP BY g)", arity="1-2"),
    Aggregate("kll_merge_agg_double", "One KLL sketch, of DOUBLE, of those of all rows.",
        "SELECT kll_sketch_get_n_double(kll_merge_agg_double(s)) = 4 FROM (SELECT "
        "kll_sketch_agg_double(d) AS s FROM t GROUP BY g)", arity="1-2"),
    Aggregate("kll_merge_agg_float", "One KLL sketch, of FLOAT, of those of all rows.",
        "SELECT kll_sketch_get_n_float(kll_merge_agg_float(s)) = 4 FROM (SELECT "
        "kll_sketch_agg_float(float(d)) AS s FROM t GROUP BY g)", arity="1-2"),
    Aggregate("kll_sketch_agg_bigint", "A KLL sketch of numbers, as BIGINT.",
        "kll_sketch_get_n_bigint(kll_sketch_agg_bigint(bigint(k))) = 4", arity="1-2"),
    Aggregate("kll_sketch_agg_double", "A KLL sketch of numbers, as DOUBLE.",
        "kll_sketch_get_n_double(kll_sketch_agg_double(d)) = 4", arity="1-2"),
    Aggregate("kll_sketch_agg_float", "A KLL sketch of numbers, as FLOAT.",
        "kll_sketch_get_n_float(kll_sketch_agg_float(float(d))) = 4", arity="1-2"),
    Function("kll_sketch_get_n_bigint", "How many numbers a KLL sketch of BIGINT has seen.",
        "kll_sketch_get_n_bigint(kll_sketch_agg_bigint(bigint(k))) = 4", arity="1"),
    Function("kll_sketch_get_n_double", "How many numbers a KLL sketch of DOUBLE has seen.",
        "kll_sketch_get_n_double(kll_sketch_agg_double(d)) = 4", arity="1"),
    Function("kll_sketch_get_n_float", "How many numbers a KLL sketch of FLOAT has seen.",
        "kll_sketch_get_n_float(kll_sketch_agg_float(float(d))) = 4", arity="1"),
    Function("kll_sketch_get_quantile_bigint",
        "The number of a KLL sketch of BIGINT below which a share lies, about.",
        "kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(bigint(k)), 0.5D) = 2", arity="2"),
    Function("kll_sketch_get_quantile_double",
        "The number of a KLL sketch of DOUBLE below which a share lies, about.",
        "kll_sketch_get_quantile_double(kll_sketch_agg_double(d), 0.5D) = 2", arity="2"),
    Function("kll_sketch_get_quantile_float",
        "The number of a KLL sketch of FLOAT below which a share lies, about.",
        "kll_sketch_get_quantile_float(kll_sketch_agg_float(float(d)), 0.5D) = 2", arity="2"),
    Function("kll_sketch_get_rank_bigint",
        "The share of the numbers of a KLL sketch of BIGINT up to a number, about.",
        "kll_sketch_get_rank_bigint(kll_sketch_agg_bigint(bigint(k)), 2) = 0.5", arity="2"),
    Function("kll_sketch_get_rank_double",
        "The share of the numbers of a KLL sketch of DOUBLE up to a number, about.",
        "kll_sketch_get_rank_double(kll_sketch_agg_double(d), 2) = 0.5", arity="2"),
    Function("kll_sketch_get_rank_float",
        "The share of the numbers of a KLL sketch of FLOAT up to a number, about.",
        "kll_sketch_get_rank_float(kll_sketch_agg_float(float(d)), 2) = 0.5", arity="2"),
    Function("kll_sketch_merge_bigint", "One KLL sketch of BIGINT of two.",
        "kll_sketch_get_n_bigint(kll_sketch_merge_bigint(kll_sketch_agg_bigint(bigint(k)), "
        "kll_sketch_agg_bigint(bigint(k)))) = 8", arity="2"),
    Function("kll_sketch_merge_double", "One KLL sketch of DOUBLE of two.",
        "kll_sketch_get_n_double(kll_sketch_merge_double(kll_sketch_agg_double(d), "
        "kll_sketch_agg_double(d))) = 8", arity="2"),
    Function("kll_sketch_merge_float", "One KLL sketch of FLOAT of two.",
        "kll_sketch_get_n_float(kll_sketch_merge_float(kll_sketch_agg_float(float(d)), "
        "kll_sketch_agg_float(float(d)))) = 8", arity="2"),
    Function("kll_sketch_to_string_bigint", "What a KLL sketch of BIGINT is like, for people.",
        "kll_sketch_to_string_bigint(kll_sketch_agg_bigint(bigint(k))) IS NOT NULL", arity="1"),
    Function("kll_sketch_to_string_double", "What a KLL sketch of DOUBLE is like, for people.",
        "kll_sketch_to_string_double(kll_sketch_agg_double(d)) IS NOT NULL", arity="1"),
    Function("kll_sketch_to_string_float", "What a KLL sketch of FLOAT is like, for people.",
        "kll_sketch_to_string_float(kll_sketch_agg_float(float(d))) IS NOT NULL", arity="1"),
    Function("theta_difference", "A Theta sketch of the values of the first that the second has not.",
        "theta_sketch_estimate(theta_difference(theta_sketch_agg(k), theta_sketch_agg(k + 2))) = 2",
        arity="2"),
    Function("theta_intersection", "A Theta sketch of the values that two have in common.",
        "theta_sketch_estimate(theta_intersection(theta_sketch_agg(k), theta_sketch_agg(k + 2))) = 2",
        arity="2"),
    Aggregate("theta_intersection_agg", "A Theta sketch of the values that those of all rows have in common.",
        "SELECT theta_sketch_estimate(theta_intersection_agg(s)) = 0 FROM (SELECT theta_sketch_agg(k) AS "
        "s FROM t GROUP BY g)", arity="1"),
    Aggregate("theta_sketch_agg", "A Theta sketch of the values.",
        "theta_sketch_estimate(theta_sketch_agg(k)) = 4", arity="1-2"),
    Function("theta_sketch_estimate", "How many different values a Theta sketch has, about.",
        "theta_sketch_estimate(theta_sketch_agg(k)) = 4", arity="1"),
    Function("theta_union", "A Theta sketch of the values of two.",
        "theta_sketch_estimate(theta_union(theta_sketch_agg(k), theta_sketch_agg(k + 4))) = 8", arity="2-3"),
    Aggregate("theta_union_agg", "A Theta sketch of the values of those of all rows.",
        "SELECT theta_sketch_estimate(theta_union_agg(s)) = 4 FROM (SELECT theta_sketch_agg(k) AS s FROM "
        "t GROUP BY g)", arity="1-2"),
    Function("tuple_difference_double",
        "A Tuple sketch, of DOUBLE, of the keys of the first that the second has not.",
        "tuple_sketch_estimate_double(tuple_difference_double(tuple_sketch_agg_double(k, d), "
        "tuple_sketch_agg_double(k + 2, d))) = 2", arity="2"),
    Function("tuple_difference_integer",
        "A Tuple sketch, of INT, of the keys of the first that the second has not.",
        "tuple_sketch_estimate_integer(tuple_difference_integer(tuple_sketch_agg_integer(k, k), "
        "tuple_sketch_agg_integer(k + 2, k))) = 2", arity="2"),
    Function("tuple_difference_theta_double",
        "A Tuple sketch, of DOUBLE, of the keys that a Theta sketch has not.",
        "tuple_sketch_estimate_double(tuple_difference_theta_double(tuple_sketch_agg_double(k, d), "
        "theta_sketch_agg(k + 2))) = 2", arity="2"),
    Function("tuple_difference_theta_integer",
        "A Tuple sketch, of INT, of the keys that a Theta sketch has not.",
        "tuple_sketch_estimate_integer(tuple_difference_theta_integer(tuple_sketch_agg_integer(k, k), "
        "theta_sketch_agg(k + 2))) = 2", arity="2"),
    Aggregate("tuple_intersection_agg_double",
        "A Tuple sketch, of DOUBLE, of the keys that those of all rows have in common.",
        "SELECT tuple_sketch_estimate_double(tuple_intersection_agg_double(s)) = 0 FROM (SELECT "
        "tuple_sketch_agg_double(k, d) AS s FROM t GROUP BY g)", arity="1-2"),
    Aggregate("tuple_intersection_agg_integer",
        "A Tuple sketch, of INT, of the keys that those of all rows have in common.",
        "SELECT tuple_sketch_estimate_integer(tuple_intersection_agg_integer(s)) = 0 FROM (SELECT "
        "tuple_sketch_agg_integer(k, k) AS s FROM t GROUP BY g)", arity="1-2"),
    Function("tuple_intersection_double", "A Tuple sketch, of DOUBLE, of the keys that two have in common.",
        "tuple_sketch_estimate_double(tuple_intersection_double(tuple_sketch_agg_double(k, d), "
        "tuple_sketch_agg_double(k + 2, d))) = 2", arity="2-3"),
    Function("tuple_intersection_integer", "A Tuple sketch, of INT, of the keys that two have in common.",
        "tuple_sketch_estimate_integer(tuple_intersection_integer(tuple_sketch_agg_integer(k, k), "
        "tuple_sketch_agg_integer(k + 2, k))) = 2", arity="2-3"),
    Function("tuple_intersection_theta_double",
        "A Tuple sketch, of DOUBLE, of the keys that a Theta sketch has too.",
        "tuple_sketch_estimate_double(tuple_intersection_theta_double(tuple_sketch_agg_double(k, d), "
        "theta_sketch_agg(k + 2))) = 2", arity="2-3"),
    Function("tuple_intersection_theta_integer",
        "A Tuple sketch, of INT, of the keys that a Theta sketch has too.",
        "tuple_sketch_estimate_integer(tuple_intersection_theta_integer(tuple_sketch_agg_integer(k, k), "
        "theta_sketch_agg(k + 2))) = 2", arity="2-3"),
    Aggregate("tuple_sketch_agg_double", "A Tuple sketch of keys, each with a summary as DOUBLE.",
        "tuple_sketch_estimate_double(tuple_sketch_agg_double(k, d)) = 4", arity="2-4"),
    Aggregate("tuple_sketch_agg_integer", "A Tuple sketch of keys, each with a summary as INT.",
        "tuple_sketch_estimate_integer(tuple_sketch_agg_integer(k, k)) = 4", arity="2-4"),
    Function("tuple_sketch_estimate_double", "How many different keys a Tuple sketch of DOUBLE has, about.",
        "tuple_sketch_estimate_double(tuple_sketch_agg_double(k, d)) = 4", arity="1"),
    Function("tuple_sketch_estimate_integer", "How many different keys a Tuple sketch of INT has, about.",
        "tuple_sketch_estimate_integer(tuple_sketch_agg_integer(k, k)) = 4", arity="1"),
    Function("tuple_sketch_summary_double", "The summaries of a Tuple sketch of DOUBLE, put together.",
        "tuple_sketch_summary_double(tuple_sketch_agg_double(k, d)) = 10", arity="1-2"),
    Function("tuple_sketch_summary_integer", "The summaries of a Tuple sketch of INT, put together.",
        "tuple_sketch_summary_integer(tuple_sketch_agg_integer(k, k)) = 10", arity="1-2"),
    Function("tuple_sketch_theta_double", "The share of the keys that a Tuple sketch of DOUBLE keeps.",
        "tuple_sketch_theta_double(tuple_sketch_agg_double(k, d)) = 1", arity="1"),
    Function("tuple_sketch_theta_integer", "The share of the keys that a Tuple sketch of INT keeps.",
        "tuple_sketch_theta_integer(tuple_sketch_agg_integer(k, k)) = 1", arity="1"),
    Aggregate("tuple_union_agg_double", "A Tuple sketch, of DOUBLE, of the keys of those of all rows.",
        "SELECT tuple_sketch_estimate_double(tuple_union_agg_double(s)) = 4 FROM (SELECT "
        "tuple_sketch_agg_double(k, d) AS s FROM t GROUP BY g)", arity="1-3"),
    Aggregate("tuple_union_agg_integer", "A Tuple sketch, of INT, of the keys of those of all rows.",
        "SELECT tuple_sketch_estimate_integer(tuple_union_agg_integer(s)) = 4 FROM (SELECT "
        "tuple_sketch_agg_integer(k, k) AS s FROM t GROUP BY g)", arity="1-3"),
    Function("tuple_union_double", "A Tuple sketch, of DOUBLE, of the keys of two.",
        "tuple_sketch_estimate_double(tuple_union_double(tuple_sketch_agg_double(k, d), "
        "tuple_sketch_agg_double(k + 2, d))) = 6", arity="2-4"),
    Function("tuple_union_integer", "A Tuple sketch, of INT, of the keys of two.",
        "tuple_sketch_estimate_integer(tuple_union_integer(tuple_sketch_agg_integer(k, k), "
        "tuple_sketch_agg_integer(k + 2, k))) = 6", arity="2-4"),
    Function("tuple_union_theta_double",
        "A Tuple sketch, of DOUBLE, of the keys of one and the values of a Theta sketch.",
        "tuple_sketch_estimate_double(tuple_union_theta_double(tuple_sketch_agg_double(k, d), "
        "theta_sketch_agg(k + 2))) = 6", arity="2-4"),
    Function("tuple_union_theta_integer",
        "A Tuple sketch, of INT, of the keys of one and the values of a Theta sketch.",
        "tuple_sketch_estimate_integer(tuple_union_theta_integer(tuple_sketch_agg_integer(k, k), "
        "theta_sketch_agg(k + 2))) = 6", arity="2-4"),
)
# fmt: on
