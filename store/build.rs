//! Rebuilds the crate when a migration file appears: `sqlx::migrate!` alone only follows the files
//! that it has already seen.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
