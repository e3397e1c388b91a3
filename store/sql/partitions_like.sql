-- The statements that make partition $2 of table $1 like its partition $3: storage options, row-level
-- security, policies, and the indexes that are the partition's own, whose names carry the month ($4
-- of the new one, $5 of the other). What belongs to the table itself comes with attaching. Reads the
-- catalogue only; takes no lock that anybody waits for, uses no index of ours.
WITH model AS (SELECT * FROM pg_class WHERE oid = ('public.' || quote_ident($3::text))::regclass),
made AS (SELECT 'public.' || quote_ident($2::text) AS name)
SELECT statement FROM (
    SELECT 1 AS step, 0::oid AS n, format(
        'CREATE TABLE %s (LIKE public.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS '
            'INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION INCLUDING STATISTICS)%s',
        made.name, $1::text, ' WITH (' || array_to_string(model.reloptions, ', ') || ')') AS statement
    FROM model, made
    UNION ALL
    SELECT 2, 0, format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', made.name)
    FROM model, made WHERE model.relrowsecurity
    UNION ALL
    SELECT 2, 1, format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', made.name)
    FROM model, made WHERE model.relforcerowsecurity
    UNION ALL
    SELECT 3, p.oid, format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s',
        replace(p.polname, $3::text, $2::text), made.name,
        CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
        CASE p.polcmd WHEN '*' THEN 'ALL' WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT'
            WHEN 'w' THEN 'UPDATE' ELSE 'DELETE' END,
        (SELECT string_agg(CASE WHEN r.oid = 0 THEN 'PUBLIC' ELSE r.oid::regrole::text END, ', ')
            FROM unnest(p.polroles) AS r (oid)),
        ' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')',
        ' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')')
    FROM model JOIN pg_policy p ON p.polrelid = model.oid, made
    UNION ALL
    SELECT 4, i.indexrelid, replace(pg_get_indexdef(i.indexrelid), $5::text, $4::text)
    FROM model JOIN pg_index i ON i.indrelid = model.oid
    WHERE NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)
) AS statements
ORDER BY step, n
