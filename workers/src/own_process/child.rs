//! The other side: the process that makes one call.

use std::io::{self, BufRead as _, Write as _};

use tokio::sync::oneshot;

use super::{Job, Line};
use crate::egress::Egress;

/// Reads one call from standard input, makes it, and writes the answer to standard output. Ends
/// when standard input does: then nobody waits for the answer any more.
///
/// # Errors
/// What was read cannot be understood, or nobody listens.
pub async fn make_one_call() -> io::Result<()> {
    let (job, over) = listen()?;
    let job = job.await.map_err(io::Error::other)?;
    let job: Job = serde_json::from_str(&job)?;
    let egress = Egress::new(&job.options).map_err(io::Error::other)?;
    say(&Line::Begun)?;
    let answer = tokio::select! {
        answer = egress.call(&job.call) => answer,
        _ = over => return Ok(()),
    };
    say(&Line::Ended(answer))
}

/// Reads standard input in a thread of its own: its first line, and when it is over. Nobody waits
/// for that thread, so the process can end while it reads.
fn listen() -> io::Result<(oneshot::Receiver<String>, oneshot::Receiver<()>)> {
    let (told, job) = oneshot::channel();
    let (ended, over) = oneshot::channel::<()>();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut lines = io::stdin().lock().lines().map_while(Result::ok);
        if let Some(line) = lines.next() {
            // A receiver that is gone needs no line.
            let _ = told.send(line);
        }
        lines.for_each(drop);
        drop(ended);
    })?;
    Ok((job, over))
}

fn say(line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&text)?;
    output.flush()
}
