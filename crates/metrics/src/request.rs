//! Decides what a request of HTTP/1.x is answered with, from its head alone; it reads no socket.

use crate::Format;

/// What is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The metrics.
    Metrics(Format),
    /// The page that says what is where.
    Index,
    /// A refusal.
    Refused(Refusal),
}

/// Why nothing is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is no request of HTTP/1.x.
    Malformed,
    /// There is nothing under that path.
    Unknown,
    /// Another method than GET.
    Method,
    /// It did not come in time.
    Slow,
    /// It is longer than allowed.
    Long,
    /// The numbers cannot be read, or too many ask at once.
    Unavailable,
}

impl Refusal {
    /// Status line of the response.
    pub(crate) fn status(self) -> &'static str {
        match self {
            Refusal::Malformed => "400 Bad Request",
            Refusal::Unknown => "404 Not Found",
            Refusal::Method => "405 Method Not Allowed",
            Refusal::Slow => "408 Request Timeout",
            Refusal::Long => "431 Request Header Fields Too Large",
            Refusal::Unavailable => "503 Service Unavailable",
        }
    }

    /// What was seen, what is allowed.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refusal::Malformed => {
                "request: cannot read it: no HTTP/1.x, allowed 'GET /metrics HTTP/1.1' and header \
                    lines\n"
            }
            Refusal::Unknown => "path: nothing is there, allowed /metrics and /\n",
            Refusal::Method => "method: allowed GET\n",
            Refusal::Slow => "request: did not come whole in time; send it at once\n",
            Refusal::Long => "request: longer than allowed; send fewer headers\n",
            Refusal::Unavailable => "endpoint: too many ask at once; ask again in a few seconds\n",
        }
    }
}

/// Where the head of a request ends: behind its empty line.
pub(crate) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}

/// What a whole head asks for. The body, if one follows, is not looked at.
pub(crate) fn asked(head: &[u8]) -> Asked {
    let refused = |why| Asked::Refused(why);
    let Ok(text) = std::str::from_utf8(head) else { return refused(Refusal::Malformed) };
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or("").split(' ').collect();
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = words[..] else {
        return refused(Refusal::Malformed);
    };
    let token = |t: &str| {
        !t.is_empty()
            && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    let mut accept: Vec<&str> = vec![];
    for line in lines {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| token(name)) else {
            return refused(Refusal::Malformed);
        };
        if name.eq_ignore_ascii_case("accept") {
            accept.push(value);
        }
    }
    if !token(method) || !target.starts_with('/') || text.bytes().any(|b| b == 0) {
        return refused(Refusal::Malformed);
    }
    let path = target.split('?').next().unwrap_or(target);
    match (path, method) {
        ("/metrics", "GET") => Asked::Metrics(Format::accepted(&accept.join(","))),
        ("/", "GET") => Asked::Index,
        ("/metrics" | "/", _) => refused(Refusal::Method),
        _ => refused(Refusal::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Asked {
        asked(text.as_bytes())
    }

    #[test]
    fn a_request_is_answered_by_method_path_and_accept() {
        let plain = Asked::Metrics(Format::Prometheus);
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), plain);
        assert_eq!(of("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), plain);
        assert_eq!(
            of("GET /metrics HTTP/1.1\r\naccEPT:application/openmetrics-text\r\n\r\n"),
            Asked::Metrics(Format::OpenMetrics)
        );
        let two = "GET /metrics HTTP/1.1\r\nAccept: text/html\r\nAccept: \
            application/openmetrics-text\r\n\r\n";
        assert_eq!(of(two), Asked::Metrics(Format::OpenMetrics));
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), Asked::Index);
        for method in ["HEAD", "POST", "DELETE", "get"] {
            assert_eq!(
                of(&format!("{method} /metrics HTTP/1.1\r\n\r\n")),
                Asked::Refused(Refusal::Method),
                "{method}"
            );
        }
        for path in ["/metrics/", "/etc/passwd", "/../metrics", "//metrics"] {
            assert_eq!(
                of(&format!("GET {path} HTTP/1.1\r\n\r\n")),
                Asked::Refused(Refusal::Unknown),
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_no_request_is_refused_as_malformed() {
        let not = [
            "\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "GET  /metrics HTTP/1.1\r\n\r\n",
            "GET metrics HTTP/1.1\r\n\r\n",
            "GET http://a/metrics HTTP/1.1\r\n\r\n",
            "GET /metrics HTTP/2\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nno header\r\n\r\n",
            "GET /metrics HTTP/1.1\r\n: x\r\n\r\n",
            "GET /metrics HTTP/1.1\r\na b: x\r\n\r\n",
            "G\u{e9}T /metrics HTTP/1.1\r\n\r\n",
            "GET /met\0rics HTTP/1.1\r\n\r\n",
        ];
        for text in not {
            assert_eq!(of(text), Asked::Refused(Refusal::Malformed), "{text:?}");
        }
        assert_eq!(asked(b"\xff\xfe / HTTP/1.1\r\n\r\n"), Asked::Refused(Refusal::Malformed));
        assert_eq!(
            (head_end(b"GET / HTTP/1.1\r\n\r\nrest"), head_end(b"GET / HTTP/1.1\r\n")),
            (Some(18), None)
        );
    }
}
