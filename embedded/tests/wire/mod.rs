//! As much of the Postgres protocol as it takes to ask a question without a client library.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Connects as superuser and returns the code of the server's first authentication message:
/// 0 means welcome, 10 means that a password (SASL) is asked for.
pub(crate) fn greeting(port: u16, database: &str) -> Result<u32> {
    Ok(connect(port, database)?.1)
}

/// Runs one statement and returns the first column of its rows.
pub(crate) fn ask(port: u16, sql: &str) -> Result<Vec<String>> {
    let (mut stream, code) = connect(port, "postgres")?;
    if code != 0 {
        return Err(Error::other(format!("authentication code {code}")));
    }
    while message(&mut stream)?.0 != b'Z' {}
    let mut query = vec![b'Q'];
    query.extend(u32::try_from(sql.len() + 5).map_err(Error::other)?.to_be_bytes());
    query.extend(sql.as_bytes());
    query.push(0);
    stream.write_all(&query)?;
    let mut rows = Vec::new();
    loop {
        match message(&mut stream)? {
            (b'Z', _) => return Ok(rows),
            (b'D', body) => rows.push(String::from_utf8_lossy(&body[6..]).into_owned()),
            (b'E', body) => return Err(Error::other(String::from_utf8_lossy(&body).into_owned())),
            _ => {}
        }
    }
}

fn connect(port: u16, database: &str) -> Result<(TcpStream, u32)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let parameters = format!("user\0postgres\0database\0{database}\0\0");
    let mut startup = Vec::new();
    startup.extend(u32::try_from(parameters.len() + 8).map_err(Error::other)?.to_be_bytes());
    startup.extend(196_608_u32.to_be_bytes());
    startup.extend(parameters.as_bytes());
    stream.write_all(&startup)?;
    match message(&mut stream)? {
        (b'R', body) => Ok((stream, u32::from_be_bytes([body[0], body[1], body[2], body[3]]))),
        (_, body) => Err(Error::other(String::from_utf8_lossy(&body).into_owned())),
    }
}

fn message(stream: &mut TcpStream) -> Result<(u8, Vec<u8>)> {
    let mut head = [0_u8; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let mut body = vec![0; length as usize - 4];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}
