//! Parses an HTTP request: only GET, no body, at most 8 KiB.

use std::{
    io::Read,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Maximum size of a request, bytes.
const MOST_BYTES: usize = 8 * 1024;
/// Maximum number of header lines.
const MOST_HEADERS: usize = 64;
/// Time limit for the whole request, so that slow senders cannot block a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The path before `?`.
    pub(super) path: String,
    /// The query: names and values in order.
    pub(super) query: Vec<(String, String)>,
}

impl Request {
    /// The request without the token that its path must begin with.
    pub(super) fn under(mut self, token: &str) -> Result<Self, Refused> {
        let (first, rest) = self.path[1..].split_once('/').unwrap_or((&self.path[1..], ""));
        // All bytes are compared: the time tells nothing of how many are right.
        let differ = first.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
        if first.len() != token.len() || differ != 0 {
            return Err(Refused { status: 403, why: "use the address that `ioreel serve` printed" });
        }
        self.path = format!("/{rest}");
        Ok(self)
    }
}

/// A refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// HTTP status.
    pub(super) status: u16,
    /// Message.
    pub(super) why: &'static str,
}

/// Reads up to the empty line.
pub(super) fn read(from: &mut impl Read) -> Result<Request, Refused> {
    let begun = Instant::now();
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(parsed) = parse(&bytes)? {
            return Ok(parsed);
        }
        if bytes.len() >= MOST_BYTES {
            return Err(Refused { status: 431, why: "the request is too long" });
        }
        let mut chunk = [0u8; 1024];
        let room = chunk.len().min(MOST_BYTES - bytes.len());
        let n = from.read(&mut chunk[..room]).unwrap_or(0);
        if n == 0 || begun.elapsed() > PATIENCE {
            return Err(Refused { status: 408, why: "the request took too long" });
        }
        bytes.extend_from_slice(&chunk[..n]);
    }
}

/// `None` if the request is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Request>, Refused> {
    let malformed = Refused { status: 400, why: "not an HTTP request" };
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refused { status: 431, why: "too many headers" }),
        Err(_) => return Err(malformed),
    }
    if request.method != Some("GET") {
        return Err(Refused { status: 405, why: "only GET is supported" });
    }
    let header = |name: &str| {
        let mut found = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name));
        let first = found.next().map(|h| String::from_utf8_lossy(h.value).into_owned());
        (first, found.next().is_some())
    };
    // Refuses other names of this machine (DNS rebinding): a page of such a name could read the answers.
    match header("host") {
        (Some(host), false) if is_own_name(&host) => {}
        (None, _) if request.version == Some(0) => {}
        _ => return Err(Refused { status: 421, why: "use an IP address or localhost in the URL" }),
    }
    // Refuses requests that pages of other sites cause.
    if header("sec-fetch-site").0.is_some_and(|from| from == "cross-site" || from == "same-site") {
        return Err(Refused { status: 403, why: "requests from pages of other sites are refused" });
    }
    let target = request.path.filter(|p| p.starts_with('/')).ok_or(malformed)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query.split('&').filter(|q| !q.is_empty()).map(|q| q.split_once('=').unwrap_or((q, "")));
    let query = query.map(|(name, value)| (name.to_owned(), value.replace("%3A", ":").replace("%3a", ":")));
    Ok(Some(Request { path: path.to_owned(), query: query.collect() }))
}

/// Whether it is an address or `localhost`, with or without a port.
fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> u16 {
        read(&mut text.as_bytes()).err().map_or(200, |r| r.status)
    }

    #[test]
    fn a_request_is_its_path_and_query() {
        let r =
            read(&mut &b"GET /window.json?from_ns=1&dev=8%3A0&x HTTP/1.1\r\nHost: 127.0.0.1:80\r\nA: b\r\n\r\n"[..]);
        let query = [("from_ns", "1"), ("dev", "8:0"), ("x", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(r, Ok(Request { path: "/window.json".into(), query: query.into() }));
    }

    #[test]
    fn others_than_get_from_here_are_refused() {
        let host = "Host: localhost:1\r\n";
        for method in ["POST", "PUT", "HEAD", "DELETE", "OPTIONS", "CONNECT"] {
            assert_eq!(status(&format!("{method} / HTTP/1.1\r\n{host}\r\n")), 405, "{method}");
        }
        for (text, want) in [
            (format!("GET / HTTP/1.1\r\n{host}\r\n"), 200),
            ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n".into(), 200),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(), 421),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80\r\n\r\n".into(), 421),
            ("GET / HTTP/1.1\r\n\r\n".into(), 421),
            (format!("GET / HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n"), 421),
            (format!("GET / HTTP/1.1\r\n{host}Sec-Fetch-Site: cross-site\r\n\r\n"), 403),
            (format!("GET / HTTP/1.1\r\n{host}Sec-Fetch-Site: same-origin\r\n\r\n"), 200),
            (format!("GET http://x/ HTTP/1.1\r\n{host}\r\n"), 400),
            ("\u{1}\u{2}\r\n\r\n".into(), 400),
            (format!("GET /{} HTTP/1.1\r\n", "x".repeat(10_000)), 431),
            (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100)), 431),
            ("GET / HTTP/1.1\r\nHost".into(), 408),
            (String::new(), 408),
        ] {
            assert_eq!(status(&text), want, "{text:?}");
        }
    }
}
