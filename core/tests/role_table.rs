//! Which role may call which RPC, against the RPCs that the wire has.

use std::collections::BTreeSet;

use undolog_core::role::{Role, Rpc, allows};

#[test]
fn every_rpc_of_the_wire_is_known_and_no_other() {
    let path = format!("{}/../proto/undolog.proto", env!("CARGO_MANIFEST_DIR"));
    let proto = std::fs::read_to_string(path).expect("the wire is part of the repository");
    let mut service = "";
    let mut wire = BTreeSet::new();
    for line in proto.lines().map(str::trim) {
        let mut words =
            line.split(|c: char| c.is_whitespace() || c == '(').filter(|w| !w.is_empty());
        match (words.next(), words.next()) {
            (Some("service"), Some(name)) => service = name,
            (Some("rpc"), Some(name)) => {
                wire.insert(format!("{service}/{name}"));
            }
            _ => {}
        }
    }
    let known: BTreeSet<_> = Rpc::ALL.iter().map(|rpc| rpc.as_str().to_owned()).collect();
    assert_eq!(known, wire);
    for rpc in Rpc::ALL {
        assert_eq!(Rpc::from_path(&format!("/undolog.v1.{rpc}")), Some(*rpc));
    }
    assert_eq!(Rpc::from_path("/grpc.health.v1.Health/Check"), None);
    assert_eq!(Rpc::from_path("UndoLogEngine/Intercept"), None);
}

const READS: &[Rpc] = &[
    Rpc::Get,
    Rpc::List,
    Rpc::ListEffects,
    Rpc::GetValue,
    Rpc::GetReplay,
    Rpc::WatchEvents,
    Rpc::GetTool,
    Rpc::ListTools,
    Rpc::GetCompensation,
    Rpc::ListCompensations,
    Rpc::ListApprovals,
    Rpc::GetApproval,
    Rpc::WatchApproval,
];
const CALLS: &[Rpc] = &[Rpc::Intercept, Rpc::Commit, Rpc::Fail, Rpc::Heartbeat];
const PROXY: &[Rpc] = &[Rpc::Tick, Rpc::ListApproved];
const ALL: &[Rpc] = &[Rpc::Authenticate];
const DECISIONS: &[Rpc] = &[Rpc::Approve, Rpc::Reject];
const ENDINGS: &[Rpc] = &[Rpc::Complete, Rpc::FailSession, Rpc::Rollback];
const OPEN_ENDS: &[Rpc] = &[
    Rpc::ListUnknown,
    Rpc::ListDeadLetters,
    Rpc::GetDeadLetter,
    Rpc::GetQueueStatus,
    Rpc::ListNotifications,
];
const REVOKE: &[Rpc] = &[Rpc::RevokeApproval];
const SETTLE: &[Rpc] = &[
    Rpc::ResolveEffect,
    Rpc::RetryDeadLetters,
    Rpc::SkipDeadLetters,
    Rpc::ResolveDeadLetters,
    Rpc::SettleSession,
    Rpc::PauseQueue,
    Rpc::ResumeQueue,
    Rpc::CloseBreaker,
    Rpc::SetBrake,
    Rpc::ReplayNotifications,
];
const OWN: &[Rpc] = &[Rpc::Begin, Rpc::Savepoint, Rpc::RegisterTool];

#[test]
fn every_cell() {
    let table: [(Role, Vec<&[Rpc]>); 4] = [
        (Role::Agent, vec![ALL, READS, CALLS, ENDINGS, OWN]),
        (Role::Executor, vec![ALL, CALLS, PROXY]),
        (Role::Approver, vec![ALL, READS, DECISIONS, OPEN_ENDS, REVOKE]),
        (Role::Operator, vec![ALL, READS, ENDINGS, OPEN_ENDS, REVOKE, SETTLE]),
    ];
    for (role, groups) in table {
        for rpc in Rpc::ALL {
            let expected = groups.iter().any(|group| group.contains(rpc));
            assert_eq!(allows(role, *rpc), expected, "{role} {rpc}");
        }
    }
    assert!(Rpc::ALL.iter().all(|rpc| allows(Role::Admin, *rpc)));
}

#[test]
fn only_an_admin_weakens_the_registry_and_only_agents_are_bound_to_their_sessions() {
    for role in Role::ALL.iter().copied() {
        assert_eq!(role.may_weaken_registry(), role == Role::Admin);
        assert_eq!(allows(role, Rpc::RegisterCompensation), role == Role::Admin);
        assert_eq!(role.is_bound_to_own_sessions(), role == Role::Agent);
        assert_eq!(role.is_bound_to_upstream_tools(), role == Role::Executor);
    }
}
