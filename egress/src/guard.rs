//! Guard switches of test builds, as the journal has them. Without the feature `testkit` they cost
//! nothing.

#[cfg(all(feature = "testkit", not(debug_assertions)))]
compile_error!("the feature `testkit` is for test builds: build without it, or in a debug profile");

/// True, except in a test build whose environment takes the guard of this name out
/// (`UNDOLOG_GUARDS_OFF=name,other`).
pub(crate) fn guard(name: &str) -> bool {
    #[cfg(feature = "testkit")]
    if std::env::var("UNDOLOG_GUARDS_OFF").is_ok_and(|off| off.split(',').any(|n| n.trim() == name))
    {
        return false;
    }
    let _only_test_builds_ask = name;
    true
}
