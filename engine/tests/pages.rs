//! Every reason has a page in `docs/errors/`, and every page a reason.

use std::{collections::BTreeSet, fs, path::Path};

use undolog_core::Reason;

#[test]
fn every_reason_has_its_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .expect("docs/errors")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let wanted: BTreeSet<String> =
        Reason::ALL.iter().map(|reason| format!("{reason}.md")).collect();
    assert_eq!(pages, wanted);
    for reason in Reason::ALL {
        let page = fs::read_to_string(folder.join(format!("{reason}.md"))).expect("a page");
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.starts_with(&format!("# {reason} {}", reason.explanation())), "{reason}");
        assert!(words.contains(&format!("gRPC code: `{}`", reason.code())), "{reason}");
        assert!(words.contains("## What to do"), "{reason}");
    }
}
