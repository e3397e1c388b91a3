//! The witness as a process of its own: `undolog-witness [ADDRESS]`. Its first line of output is
//! the address that it listens on.

use std::io::Write;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let witness = undolog_tests::Witness::start_on(address.parse()?).await;
    writeln!(std::io::stdout(), "http://{}", witness.address())?;
    witness.serve_forever().await;
    Ok(())
}
