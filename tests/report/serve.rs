//! `ioreel serve` as a browser, and as somebody who means no good, meets it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{browser, reels};

/// A running server; ends with the test.
struct Served {
    child: Child,
    /// `127.0.0.1:PORT`.
    address: String,
    /// `/TOKEN`.
    token: String,
}

impl Served {
    fn start(reel: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ioreel"))
            .args(["serve", reel.to_str().unwrap(), "--address", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").and_then(|a| a.strip_suffix('/')).expect("its address");
        assert!(address.starts_with("127.0.0.1:"), "{line}");
        let (address, token) = address.split_once('/').expect("a token");
        assert!(token.len() == 32 && token.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
        Self { child, address: address.into(), token: format!("/{token}") }
    }

    fn send(&self, text: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A refusal may come before all was sent.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    fn get(&self, target: &str) -> (u16, String) {
        self.send(&format!("GET {}{target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.token, self.address))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_served_page_gets_all_of_what_it_shows() {
    let dir = tempfile::tempdir().unwrap();
    let reel = reels::many(dir.path());
    let served = Served::start(&reel);
    let (status, page) = served.get("/");
    assert!(status == 200 && page.contains("data-served=\"yes\"") && page.len() < 15_000_000);
    // A window of a twentieth of the reel, opened by its address, with a quarter more to either side.
    let (dom, requested) = browser::show(&format!("http://{}{}/#t=2-2.3", served.address, served.token), dir.path());
    assert!(
        dom.contains(">detail: 1,925 ms – 2,375 ms<"),
        "{}",
        dom.split("id=\"detail\"").nth(1).map_or("", |s| &s[..200])
    );
    assert!(requested.iter().all(|url| url.starts_with(&format!("http://{}/", served.address))), "{requested:?}");
    assert!(requested.iter().any(|url| url.contains("/bundle?from_ns=")), "{requested:?}");
}

#[test]
fn details_are_all_there_is_or_say_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&reels::full(dir.path(), "plain"));
    let json = |target: &str| -> Value {
        let (status, body) = served.get(target);
        assert_eq!(status, 200, "{target}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    // Requests were issued each millisecond from 200 ms on, and take 0.3 ms and more.
    let all = json("/window.json?from_ns=300000000&to_ns=309999999");
    assert_eq!((all["requests_total"].as_i64(), all["requests_capped"].as_bool()), (Some(10), Some(false)));
    assert_eq!(all["requests"][1]["issue_ns"].as_i64(), Some(301_000_000));
    assert_eq!(all["operations_total"].as_i64(), Some(10));
    let one = json("/window.json?from_ns=300000000&to_ns=309999999&dev=9:0");
    assert_eq!((one["requests_total"].as_i64(), one["operations_total"].as_i64()), (Some(1), Some(0)));
    assert_eq!(json("/window.json?dev=sda")["requests_total"].as_i64(), Some(900));
    // Sectors 1,000,000 + 16 i, 16 long: those at 100 and 101.
    let (from, to) = ((1_000_000 + 1600) * 512, (1_000_000 + 1617) * 512);
    assert_eq!(
        json(&format!("/window.json?dev=sda&from_bytes={from}&to_bytes={to}"))["requests_total"].as_i64(),
        Some(1)
    );
    let slow = json("/window.json?limit=3");
    assert_eq!((slow["requests_total"].as_i64(), slow["requests_capped"].as_bool()), (Some(1000), Some(true)));
    let issued: Vec<i64> =
        slow["requests"].as_array().unwrap().iter().map(|r| r["issue_ns"].as_i64().unwrap()).collect();
    assert_eq!(issued, [1_197_000_000, 1_198_000_000, 1_199_000_000], "the slowest three");
    assert_eq!(json("/window.json?limit=999999999")["limit"].as_i64(), Some(100_000));
    for bad in ["from_ns=x", "from_ns=-1", "from_ns=2&to_ns=1", "dev=zzz", "limit=1.5", "other=1"] {
        let (status, body) = served.get(&format!("/window.json?{bad}"));
        assert!(status == 400 && body.lines().count() == 1, "{bad}: {status} {body}");
    }
    for window in ["", "?from_ns=0&to_ns=1", "?from_ns=9000000000000000000"] {
        assert_eq!(
            served.get(&format!("/bundle{window}")).0,
            if window.contains("9000") { 400 } else { 200 },
            "{window}"
        );
    }
}

#[test]
fn others_get_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&reels::full(dir.path(), "plain"));
    let host = format!("Host: {}\r\n", served.address);
    let token = &served.token;
    for (text, want) in [
        (format!("POST / HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabc"), 405),
        (format!("DELETE /bundle HTTP/1.1\r\n{host}\r\n"), 405),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(), 421),
        (format!("GET / HTTP/1.1\r\n{host}Sec-Fetch-Site: cross-site\r\n\r\n"), 403),
        (format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(20_000)), 431),
        (format!("GET {token}/../../etc/passwd HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("GET {token}/manifest.json HTTP/1.1\r\n{host}\r\n"), 404),
        // Whoever does not know the token gets nothing.
        (format!("GET / HTTP/1.1\r\n{host}\r\n"), 403),
        (format!("GET /bundle HTTP/1.1\r\n{host}\r\n"), 403),
        (format!("GET /window.json HTTP/1.1\r\n{host}\r\n"), 403),
        (format!("GET {}/ HTTP/1.1\r\n{host}\r\n", &token[..32]), 403),
        (format!("GET {token}0/ HTTP/1.1\r\n{host}\r\n"), 403),
        (format!("GET /{}/window.json HTTP/1.1\r\n{host}\r\n", "0".repeat(32)), 403),
        ("\0\r\n\r\n".into(), 400),
    ] {
        let (status, body) = served.send(&text);
        assert_eq!(status, want, "{}: {body}", &text[..text.len().min(60)]);
    }
    // Clients that say nothing lose their place to newer ones: the owner is answered at once, however many there are.
    let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    for i in 0..3 {
        let begun = std::time::Instant::now();
        assert_eq!(served.get("/").0, 200, "request {i}");
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
    let closed = idle.iter().filter(|s| {
        s.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        !matches!((&mut &**s).read(&mut [0; 16]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(closed.count() >= 40 - 16, "no more than 16 are kept");
}
