-- Lists every setting of the server or the database with which a process must not serve: one row per
-- finding (kind, detail); no row means that it may. Reads settings only; takes no lock, uses no index.
--
-- A server that may lose what it has acknowledged says so itself, in a setting of its own: for tests.
SELECT 'encoding' AS kind,
    'the database stores texts as ' || current_setting('server_encoding') || ', not as UTF8: '
        || 'create one with ENCODING ''UTF8''' AS detail
WHERE current_setting('server_encoding') <> 'UTF8'
UNION ALL
SELECT 'durability',
    'the server runs with ' || name || ' = off and loses acknowledged commits when it crashes: '
        || 'turn it on'
FROM unnest(ARRAY['fsync', 'full_page_writes']) AS name
WHERE current_setting(name) = 'off'
  AND coalesce(current_setting('undolog.data_may_be_lost', true), '') <> 'on'
UNION ALL
-- Triggers and foreign keys are part of the schema's promises.
SELECT 'replication_role',
    'session_replication_role is ' || current_setting('session_replication_role')
        || ', so that triggers and foreign keys do not work'
WHERE current_setting('session_replication_role') <> 'origin'
ORDER BY 1, 2
