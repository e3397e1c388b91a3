-- The months from this one on, $1 ahead, for which a partitioned table of ours has no partition: one
-- row per table and month, with the newest partition that a new one is made like. Reads the catalogue
-- only; takes no lock that anybody waits for, uses no index of ours.
WITH parent AS (
    SELECT c.oid, c.relname::text AS name
    FROM pg_class c
    JOIN pg_partitioned_table t ON t.partrelid = c.oid AND t.partstrat = 'r'
    WHERE c.relnamespace = 'public'::regnamespace AND c.relname LIKE 'undolog\_%'
),
part AS (
    SELECT p.name AS parent, c.relname::text AS name,
        substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \('([^']+)'\)$$)::timestamptz
            AS starts_at,
        substring(pg_get_expr(c.relpartbound, c.oid) FROM $$TO \('([^']+)'\)$$)::timestamptz
            AS ends_at
    FROM parent p
    JOIN pg_inherits i ON i.inhparent = p.oid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid
)
SELECT p.name AS parent, to_char(m.starts_at, 'YYYY_MM') AS tag,
    m.starts_at::date AS first_day, (m.starts_at + interval '1 month')::date AS end_day,
    (SELECT name FROM part WHERE part.parent = p.name ORDER BY part.starts_at DESC LIMIT 1) AS newest
FROM parent p
CROSS JOIN LATERAL (
    SELECT date_trunc('month', now()) + make_interval(months => n) AS starts_at
    FROM generate_series(0, $1::int) AS n
) m
WHERE NOT EXISTS (
    SELECT FROM part
    WHERE part.parent = p.name AND part.starts_at <= m.starts_at AND m.starts_at < part.ends_at)
ORDER BY m.starts_at, p.name
