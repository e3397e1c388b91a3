//! Signs calls, one JSON object per line, so that another implementation can be held against this
//! one: `{"session_id", "step_index", "tool_name", "args"}`, where `args` is a string with the JSON
//! text of the arguments. The answer is `{"canonical", "signature"}`, or `{"refused", "path"}` for
//! arguments that have no canonical form.

use std::error::Error;
use std::io::{BufRead, Write};

use serde::Deserialize;
use serde_json::{Value, json};
use undolog_core::json::{canonical, parse_strict};
use undolog_core::signature::call_signature;
use uuid::Uuid;

#[derive(Deserialize)]
struct Call {
    session_id: Uuid,
    step_index: u32,
    tool_name: String,
    args: String,
}

fn answer(call: &Call) -> Value {
    match parse_strict(call.args.as_bytes()) {
        Ok(args) => {
            let form = canonical(&args);
            let signature =
                call_signature(call.session_id, call.step_index, &call.tool_name, &form);
            json!({"canonical": form, "signature": signature.to_string()})
        }
        Err(error) => json!({"refused": error.kind.as_str(), "path": error.path}),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let call: Call = serde_json::from_str(&line?)?;
        writeln!(out, "{}", answer(&call))?;
        out.flush()?;
    }
    Ok(())
}
