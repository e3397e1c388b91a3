-- 0019 agents: what a registration binds, who reports, and what an agent may roll back.
-- Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0019', 'Agents: bound arguments of compensations, reports of executors, rollbacks by agents')
ON CONFLICT (version) DO NOTHING;

-- What is registered already keeps taking the arguments that its callers name; so does what an older
-- engine registers during an upgrade.
ALTER TABLE undolog_tool_registry
  ADD COLUMN compensation_args jsonb,
  ADD COLUMN caller_args bool NOT NULL DEFAULT true;
COMMENT ON COLUMN undolog_tool_registry.compensation_args IS 'Template of the arguments of this tool''s compensation';
COMMENT ON COLUMN undolog_tool_registry.caller_args IS 'Callers may name other arguments for the compensation';

ALTER TABLE undolog_compensation_registry
  ADD COLUMN result_from text NOT NULL DEFAULT 'any',
  ADD CONSTRAINT undolog_compensation_registry_result_from
    CHECK (result_from IN ('any', 'executor')) NOT VALID;
COMMENT ON COLUMN undolog_compensation_registry.result_from IS 'executor: {result} comes only from calls that a proxy made or a probe found';

ALTER TABLE undolog_orgs
  ADD COLUMN agents_roll_back text NOT NULL DEFAULT 'any',
  ADD CONSTRAINT undolog_orgs_agents_roll_back
    CHECK (agents_roll_back IN ('any', 'live', 'never')) NOT VALID;
COMMENT ON COLUMN undolog_orgs.agents_roll_back IS 'Which of its own sessions an agent may roll back: any, those that have not ended, or none';

ALTER TABLE undolog_effect_log
  ADD COLUMN executor_tokens text[],
  ADD COLUMN result_by text;
COMMENT ON COLUMN undolog_effect_log.executor_tokens IS 'By attempt: the token of the proxy that makes the call, which alone reports on it';
COMMENT ON COLUMN undolog_effect_log.result_by IS 'Who said that it happened: caller, executor, probe or operator';
