//! The development server.

use std::{net::TcpListener, time::Instant};

use crate::kit::{FREE_PORTS, Folder, Server, run};

const TOOL: &str = r#"{"tool_name": "look", "tier": "safe", "tool_schema": {"type": "object"}}"#;

#[test]
fn it_answers_and_keeps_its_data_over_a_restart() {
    let folder = Folder::new("dev");
    let file = folder.path().join("tool.json");
    std::fs::write(&file, TOOL).expect("a file");
    let file = file.to_str().expect("a path of ours");

    let began = Instant::now();
    let server = Server::dev(&folder);
    let url = server.greeting["grpc_url"].as_str().expect("an address").to_owned();
    let list = ["tools", "list", "--json", "--engine-url", &url];
    assert_eq!(run(&list).ok().json(), serde_json::json!([]));
    println!("first answer after {:?}", began.elapsed());
    run(&["tools", "register", file, "--engine-url", &url]).ok();
    let mine = run(&["tools", "show", "look", "--json", "--engine-url", &url]).ok().json();
    assert_eq!(mine["tier"], "safe");
    let other = run(&["tools", "list", "--json", "--engine-url", &url, "--org", "other"]).ok();
    assert_eq!(other.json(), serde_json::json!([]), "each organisation has its own");
    assert_eq!(server.interrupt().code(), Some(0));

    let server = Server::dev(&folder);
    let url = server.greeting["grpc_url"].as_str().expect("an address").to_owned();
    let kept = run(&["tools", "show", "look", "--json", "--engine-url", &url]).ok().json();
    assert_eq!(kept, mine);

    let data = folder.path().join("data");
    let data = data.to_str().expect("a path of ours");
    let second = run(&[&["dev", "--data-dir", data], &FREE_PORTS[..]].concat());
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("DATA_FOLDER_IN_USE"), "{}", second.stderr);
    assert_eq!(server.interrupt().code(), Some(0));
}

#[test]
fn a_taken_port_is_named_before_anything_starts() {
    let folder = Folder::new("dev-port");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let data = folder.path().join("data");
    let data_dir = data.to_str().expect("a path of ours");
    let said = run(&["dev", "--port", &port, "--data-dir", data_dir]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.stderr.contains("ADDRESS_IN_USE") && said.stderr.contains(&port),
        "{}",
        said.stderr
    );
    assert!(!data.exists(), "nothing was started");
}
