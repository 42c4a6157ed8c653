//! Answers for each path.

use std::sync::PoisonError;

use super::{MOST_ANSWER_BYTES, Served, detail, head::Request};
use crate::report::{Excerpt, Window, bundle};

/// An HTTP answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    status: u16,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn given(kind: &'static str, body: Vec<u8>) -> Self {
        Self { status: 200, kind, body }
    }

    /// An error answer with one line of text.
    pub(super) fn refusal(status: u16, why: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{why}\n").into_bytes() }
    }

    /// The answer as sent.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            _ => "Service Unavailable",
        };
        let allow = if self.status == 405 { "Allow: GET\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        [head.as_bytes(), &self.body].concat()
    }
}

/// Chooses the answer.
pub(super) fn answer(served: &Served, request: &Request) -> Answer {
    let given = match request.path.as_str() {
        "/" => only(request, &[]).map(|()| Answer::given("text/html; charset=utf-8", served.page.clone().into_bytes())),
        "/bundle" => part(served, request),
        "/window.json" => list(served, request),
        _ => Err(Answer::refusal(404, "not found; use /, /bundle or /window.json")),
    };
    given.unwrap_or_else(|refusal| refusal)
}

fn part(served: &Served, request: &Request) -> Result<Answer, Answer> {
    only(request, &["from_ns", "to_ns"])?;
    let excerpt = Excerpt { window: window(request)?, longest_ns: served.longest_ns };
    let _one_at_a_time = served.reading.lock().unwrap_or_else(PoisonError::into_inner);
    let part = bundle(&served.reel, Some(excerpt), &[], MOST_ANSWER_BYTES);
    part.map(|b| Answer::given("application/octet-stream", b.bytes)).map_err(|e| Answer::refusal(500, &e.to_string()))
}

fn list(served: &Served, request: &Request) -> Result<Answer, Answer> {
    only(request, &["from_ns", "to_ns", "dev", "from_bytes", "to_bytes", "limit"])?;
    let devices = &served.reel.manifest.devices;
    let dev = match value(request, "dev") {
        None => None,
        Some(name) => {
            let number = |n: &str| {
                let (major, minor) = n.split_once(':')?;
                Some(major.parse::<i64>().ok()? << 20 | minor.parse::<i64>().ok()?)
            };
            let found = devices.iter().find(|d| d.name == name).map(|d| d.dev).or_else(|| number(name));
            Some(found.ok_or_else(|| Answer::refusal(400, "dev must be a name such as sda, or a number such as 8:0"))?)
        }
    };
    let asked = detail::Asked {
        excerpt: Excerpt { window: window(request)?, longest_ns: served.longest_ns },
        dev,
        bytes: (number(request, "from_bytes")?.unwrap_or(0), number(request, "to_bytes")?.unwrap_or(i64::MAX)),
        limit: number(request, "limit")?.map(|n| usize::try_from(n).unwrap_or(0)),
    };
    let _one_at_a_time = served.reading.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = detail::list(&served.reel, &asked).map_err(|e| Answer::refusal(500, &e.to_string()))?;
    Ok(Answer::given("application/json", listed.to_string().into_bytes()))
}

fn only(request: &Request, known: &[&str]) -> Result<(), Answer> {
    match request.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => {
            let what = format!("{}: unknown parameter {:?}; there are: {known:?}", request.path, name);
            Err(Answer::refusal(400, &what))
        }
        None => Ok(()),
    }
}

fn value<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

fn number(request: &Request, name: &str) -> Result<Option<i64>, Answer> {
    let Some(text) = value(request, name) else { return Ok(None) };
    let found = text.parse::<i64>().ok().filter(|n| *n >= 0);
    found.map(Some).ok_or_else(|| Answer::refusal(400, &format!("{name} must be a number of 0 or more")))
}

fn window(request: &Request) -> Result<Window, Answer> {
    let (from_ns, to_ns) = (number(request, "from_ns")?.unwrap_or(0), number(request, "to_ns")?.unwrap_or(1 << 61));
    if from_ns >= to_ns {
        return Err(Answer::refusal(400, "from_ns must be less than to_ns"));
    }
    Ok(Window { from_ns, to_ns: to_ns.min(1 << 61).max(from_ns.saturating_add(1)) })
}
