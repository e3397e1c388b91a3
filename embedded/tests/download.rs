//! The download, against a local stub that serves a small archive of the published layout. The
//! publisher itself is not asked.

#![cfg(feature = "download")]
#![expect(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256};
use undolog_embedded::{Download, EmbeddedError};

/// Serves fixed files and counts the requests.
struct Stub {
    url: String,
    requests: Arc<AtomicU32>,
}

impl Stub {
    fn start(files: HashMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0_u8; 4096];
                let length = stream.read(&mut head).unwrap();
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or("").to_owned();
                counter.fetch_add(1, Ordering::SeqCst);
                let (status, body) = match files.get(&path) {
                    Some(body) => ("200 OK", body.clone()),
                    None => ("404 Not Found", Vec::new()),
                };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&body).unwrap();
            }
        });
        Self { url, requests }
    }
}

fn name() -> String {
    let system = if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" };
    format!("postgresql-18.4.0-{}-{system}", std::env::consts::ARCH)
}

/// An archive whose `postgres` only tells its version.
fn archive() -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(encoder);
    for program in ["postgres", "initdb"] {
        let script = b"#!/bin/sh\necho 'postgres (PostgreSQL) 18.4'\n";
        let mut header = tar::Header::new_gnu();
        header.set_size(script.len() as u64);
        header.set_mode(0o755);
        header.set_cksum();
        let path = format!("{}/bin/{program}", name());
        builder.append_data(&mut header, path, &script[..]).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn files(hash: &str) -> HashMap<String, Vec<u8>> {
    let path = format!("/18.4.0/{}.tar.gz", name());
    let published = format!("{hash}  {}.tar.gz\n", name()).into_bytes();
    HashMap::from([(format!("{path}.sha256"), published), (path, archive())])
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("undolog-download-{name}-{}", std::process::id()))
}

#[test]
fn an_archive_is_fetched_once_checked_and_kept() {
    let stub = Stub::start(files(&hex::encode(Sha256::digest(archive()))));
    let folder = folder("kept");
    let download = Download::into_folder(&folder).base_url(&stub.url);
    let found = download.fetch().unwrap();
    assert_eq!((found.major, found.version.as_str()), (18, "18.4"));
    assert_eq!(stub.requests.load(Ordering::SeqCst), 2);
    assert_eq!(download.fetch().unwrap(), found);
    assert_eq!(stub.requests.load(Ordering::SeqCst), 2, "it was fetched again");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_archive_that_differs_from_its_hash_is_refused_and_not_unpacked() {
    let stub = Stub::start(files(&"0".repeat(64)));
    let folder = folder("differs");
    let error = Download::into_folder(&folder).base_url(&stub.url).fetch().unwrap_err();
    assert!(matches!(error, EmbeddedError::Download { .. }), "{error}");
    assert!(error.to_string().contains("SHA-256"), "{error}");
    assert!(!folder.exists());
}

#[test]
fn a_version_that_is_not_published_says_where_it_was_looked_for() {
    let stub = Stub::start(HashMap::new());
    let folder = folder("absent");
    let error = Download::into_folder(&folder).base_url(&stub.url).fetch().unwrap_err();
    assert!(error.to_string().contains(&stub.url), "{error}");
    assert!(error.to_string().contains("404"), "{error}");
}
