//! The demonstration, as the README promises it.

use crate::kit::run;
use serde_json::Value;

fn assert_all_is_undone(report: &Value) {
    for check in report["checks"].as_array().expect("checks") {
        assert_eq!(check["ok"], true, "{report:#}");
    }
    assert_eq!(report["ok"], true);
    assert_eq!(report["state_before"], report["state_after"]);
    assert_eq!(report["session"]["session"]["state"], "compensated");
}

#[test]
fn a_failed_run_is_undone() {
    let said = run(&["demo", "--json"]).ok();
    let report = said.json();
    assert_all_is_undone(&report);
    let calls = report["undo_calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 3, "{calls:#?}");
}

#[test]
fn a_failed_run_is_undone_through_two_kills_of_everything() {
    let said = run(&["demo", "--json", "--crash"]).ok();
    let report = said.json();
    assert_all_is_undone(&report);
    let calls = report["undo_calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 4, "the call that was under way is made again: {calls:#?}");
    assert_eq!(calls[1]["key"], calls[2]["key"], "with the same key");
    assert_eq!(calls[2]["applied"], false, "and changes nothing");
}
