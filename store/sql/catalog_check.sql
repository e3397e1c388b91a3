-- Lists every reason why the current role must not serve tenants on this schema: one row per finding
-- (kind, detail); no row means that it may. Reads the system catalogue only; takes no lock that
-- anybody waits for and uses no index of ours.
--
-- A tenant table is any table or partition of ours that has a column org_id.
WITH me AS (
    SELECT oid, rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user
),
ours AS (
    SELECT c.oid, c.relname::text AS name, c.relkind, c.relowner, c.relispartition,
        c.relrowsecurity, c.relforcerowsecurity, c.relacl, c.reloptions,
        EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'org_id'
                AND NOT a.attisdropped) AND c.relkind IN ('r', 'p') AS is_tenant
    FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relname LIKE 'undolog\_%'
      AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
),
rule AS (
    SELECT '(org_id = (NULLIF(current_setting(''undolog.current_org_id''::text, true), '
        || '''''::text))::uuid)' AS text
),
policy AS (
    SELECT p.polrelid, p.polname::text AS name, p.polcmd, p.polroles,
        pg_get_expr(p.polqual, p.polrelid) AS shows,
        pg_get_expr(p.polwithcheck, p.polrelid) AS lets_in
    FROM pg_policy p WHERE p.polpermissive
),
bounds AS (
    SELECT parent.name AS parent,
        substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \('([^']+)'\)$$)::timestamptz
            AS starts_at,
        substring(pg_get_expr(c.relpartbound, c.oid) FROM $$TO \('([^']+)'\)$$)::timestamptz
            AS ends_at
    FROM ours parent
    JOIN pg_partitioned_table t ON t.partrelid = parent.oid AND t.partstrat = 'r'
    LEFT JOIN pg_inherits i ON i.inhparent = parent.oid AND NOT i.inhdetachpending
    LEFT JOIN pg_class c ON c.oid = i.inhrelid
),
ahead AS (
    SELECT parent, count(*) FILTER (WHERE starts_at > now()) AS months,
        count(*) FILTER (WHERE starts_at <= now() AND now() < ends_at) AS this_month,
        count(*) FILTER (WHERE starts_at <= next AND next < ends_at) AS next_month
    FROM bounds, (SELECT date_trunc('month', now()) + interval '1 month' AS next) AS of_next
    GROUP BY parent
)
SELECT 'superuser' AS kind, rolname || ' is a superuser' AS detail FROM me WHERE rolsuper
UNION ALL
SELECT 'bypassrls', rolname || ' has BYPASSRLS' FROM me WHERE rolbypassrls
UNION ALL
SELECT 'owner', me.rolname || ' owns ' || o.name FROM me JOIN ours o ON o.relowner = me.oid
UNION ALL
-- A member could switch to the role that sees every row.
SELECT 'member', me.rolname || ' is a member of ' || r.rolname
FROM me JOIN pg_roles r ON r.oid <> me.oid AND pg_has_role(me.oid, r.oid, 'MEMBER')
WHERE NOT me.rolsuper
  AND (r.rolsuper OR r.rolbypassrls OR r.oid IN (SELECT relowner FROM ours)
       OR r.rolname IN ('undolog_owner', 'undolog_auth'))
UNION ALL
SELECT 'may_delete', me.rolname || ' may delete from ' || o.name
FROM me CROSS JOIN ours o
WHERE o.name IN ('undolog_orgs', 'undolog_sessions')
  AND has_table_privilege(me.oid, o.oid, 'DELETE, TRUNCATE')
UNION ALL
SELECT 'may_rewrite', me.rolname || ' may change rows of ' || o.name
FROM me CROSS JOIN ours o
WHERE o.name IN ('undolog_approval_events', 'undolog_effect_events')
  AND (has_table_privilege(me.oid, o.oid, 'DELETE, TRUNCATE')
       OR has_any_column_privilege(me.oid, o.oid, 'UPDATE'))
UNION ALL
-- Policies of the parent do not bind a partition that is named directly.
SELECT 'partition_granted', me.rolname || ' has rights on the partition ' || o.name
FROM me CROSS JOIN ours o
WHERE o.relispartition AND o.is_tenant
  AND (has_any_column_privilege(me.oid, o.oid, 'SELECT, INSERT, UPDATE')
       OR has_table_privilege(me.oid, o.oid, 'DELETE, TRUNCATE'))
UNION ALL
SELECT 'missing_table', name || ' does not exist'
FROM unnest(ARRAY['undolog_orgs', 'undolog_projects', 'undolog_tool_registry',
    'undolog_compensation_registry', 'undolog_sessions', 'undolog_effect_log',
    'undolog_undo_stack', 'undolog_approval_requests', 'undolog_approval_events',
    'undolog_session_snapshots']) AS name
WHERE name NOT IN (SELECT o.name FROM ours o WHERE o.is_tenant)
UNION ALL
SELECT 'rls_not_enabled', name || ' has row-level security disabled'
FROM ours WHERE is_tenant AND NOT relrowsecurity
UNION ALL
SELECT 'rls_not_forced', name || ' does not force row-level security'
FROM ours WHERE is_tenant AND NOT relforcerowsecurity
UNION ALL
SELECT 'no_isolation', o.name || ' lacks the policy that shows an org its own rows only'
FROM ours o CROSS JOIN rule
WHERE o.is_tenant AND NOT EXISTS (
    SELECT FROM policy p
    WHERE p.polrelid = o.oid AND p.polcmd = '*' AND p.polroles = '{0}'
      AND p.shows = rule.text AND p.lets_in = rule.text)
UNION ALL
-- Permissive policies add up, so that one wide policy opens the table however strict the others are.
SELECT 'open_policy', 'policy ' || p.name || ' opens ' || o.name || ' to ' || me.rolname
FROM me CROSS JOIN rule JOIN policy p ON true JOIN ours o ON o.oid = p.polrelid AND o.is_tenant
WHERE EXISTS (SELECT FROM unnest(p.polroles) AS r (oid)
              WHERE r.oid = 0 OR pg_has_role(me.oid, r.oid, 'MEMBER'))
  AND NOT me.rolsuper
  AND (p.shows <> rule.text OR p.lets_in <> rule.text)
UNION ALL
SELECT 'public_grant', 'everybody has ' || acl.privilege_type || ' on ' || o.name
FROM ours o CROSS JOIN LATERAL aclexplode(o.relacl) AS acl WHERE acl.grantee = 0
UNION ALL
SELECT 'public_grant', 'everybody has ' || acl.privilege_type || ' on ' || o.name || '.' || a.attname
FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid AND NOT a.attisdropped
CROSS JOIN LATERAL aclexplode(a.attacl) AS acl WHERE acl.grantee = 0
UNION ALL
-- A function that runs with its owner's rights is as good as a grant.
SELECT 'public_grant', 'everybody may run ' || f.oid::regprocedure::text
FROM pg_proc f
CROSS JOIN LATERAL aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) AS acl
WHERE f.pronamespace = 'public'::regnamespace AND f.proname LIKE 'undolog\_%' AND f.prosecdef
  AND acl.grantee = 0
UNION ALL
SELECT 'definer_view', name || ' runs with its owner''s rights'
FROM ours
-- Those of undolog_auth hold keys and times only.
WHERE relkind = 'v' AND name <> 'undolog_due' AND name NOT LIKE 'undolog\_due\_%'
  AND name NOT LIKE 'undolog\_listed\_%'
  AND NOT coalesce(reloptions && ARRAY['security_invoker=true', 'security_invoker=on'], false)
UNION ALL
SELECT 'partitions', parent || ' has no partition for this month; run `undolog migrate`'
FROM ahead WHERE this_month = 0
UNION ALL
SELECT 'partitions', parent || ' has no partition for the next month; run `undolog migrate`'
FROM ahead WHERE next_month = 0
UNION ALL
-- Not a reason yet, but soon one.
SELECT 'partitions_few', parent || ' has partitions for only ' || months
    || ' months to come; run `undolog migrate`'
FROM ahead WHERE months < $1::bigint
ORDER BY 1, 2
