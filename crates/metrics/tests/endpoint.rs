//! The endpoint against clients over TCP: decent ones, slow ones, garbage, and many at once.

use metrics::{Endpoint, Format, Limits, Metric, Samples, Value, serve, strict};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const OPEN: &str =
    "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\n\r\n";

fn limits() -> Limits {
    let (request_time, answer_time) = (Duration::from_millis(600), Duration::from_secs(20));
    Limits { connections: 4, request_bytes: 2048, request_time, answer_time }
}

fn page(format: Format) -> Result<String, String> {
    let mut samples = Samples::default();
    samples.add(Metric::VmShares, &["web", "/", "1"], Value::Count(1000));
    Ok(samples.text(format))
}

fn endpoint(
    limits: Limits,
    page: impl FnMut(Format) -> Result<String, String> + Send + 'static,
) -> Endpoint {
    serve(TcpListener::bind("127.0.0.1:0").unwrap(), limits, || (), page).unwrap()
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// All that the server says until it closes.
fn rest(mut stream: TcpStream) -> String {
    let mut all = vec![];
    // a reset behind the answer is what a client that goes on sending gets
    let _ = stream.read_to_end(&mut all);
    String::from_utf8(all).unwrap()
}

fn ask(at: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(at);
    let _ = stream.write_all(request); // one that is refused may be closed while it is sent
    rest(stream)
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

fn body(answer: &str) -> &str {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse(), Ok(body.len()));
    body
}

#[test]
fn metrics_are_served_in_the_format_that_was_asked_for_and_the_connection_is_closed() {
    let endpoint = endpoint(limits(), page);
    let open =
        ask(endpoint.address(), OPEN.replace("Host: a", "Connection: keep-alive").as_bytes());
    assert!(open.starts_with("HTTP/1.1 200 OK\r\n"), "{open}");
    assert!(
        open.contains(
            "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
        ),
        "{open}"
    );
    assert!(open.contains("\r\nConnection: close\r\n"), "{open}");
    assert_eq!(strict::read(body(&open)).unwrap()["tandem_vm_shares"].samples[0].1, "1000");
    let plain = ask(endpoint.address(), b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(
        plain.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{plain}"
    );
    assert!(!body(&plain).contains("# EOF"));
    let index = ask(endpoint.address(), b"GET / HTTP/1.1\r\n\r\n");
    assert!(body(&index).contains("/metrics"), "{index}");
}

#[test]
fn what_is_not_served_is_refused_with_its_own_code() {
    let endpoint = endpoint(limits(), page);
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(300_000));
    let codes: [(&[u8], &str); 7] = [
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        (b"GET /secrets HTTP/1.1\r\n\r\n", "404"),
        (b"\x16\x03\x01\x02\0\x01\0\r\n\r\n", "400"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"no end\r\n", "408"),
        (long.as_bytes(), "431"),
    ];
    for (request, code) in codes {
        let answer = ask(endpoint.address(), request);
        assert_eq!(status(&answer), code, "{answer}");
        assert_eq!(answer.contains("\r\nAllow: GET\r\n"), code == "405");
    }
    let mut half = connect(endpoint.address());
    half.write_all(b"GET /metrics HT").unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(status(&rest(half)), "400");
    assert_eq!(status(&ask(endpoint.address(), OPEN.as_bytes())), "200", "it goes on");
}

#[test]
fn a_request_in_pieces_is_served_and_one_that_trickles_is_not_waited_for() {
    let endpoint = endpoint(limits(), page);
    let mut pieces = connect(endpoint.address());
    pieces.set_nodelay(true).unwrap();
    for byte in OPEN.as_bytes() {
        pieces.write_all(&[*byte]).unwrap();
    }
    assert_eq!(status(&rest(pieces)), "200");
    // A byte every 100 ms: each comes in time, and the request as a whole does not.
    let begin = Instant::now();
    let mut slow = connect(endpoint.address());
    let mut sender = slow.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        for byte in OPEN.as_bytes().iter().cycle().take(600) {
            if sender.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    let mut first = [0; 12];
    slow.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 408");
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
    drop(slow);
    trickle.join().unwrap();
}

#[test]
fn clients_that_hang_take_their_places_and_no_more_and_give_them_back() {
    let limits = Limits { request_time: Duration::from_secs(4), ..limits() };
    let endpoint = endpoint(limits, page);
    let hang: Vec<TcpStream> =
        (0..limits.connections).map(|_| connect(endpoint.address())).collect();
    let begin = Instant::now();
    // A client that comes while all places are taken gets 503 at once.
    let mut codes = vec![];
    while codes.last() != Some(&"503".to_owned()) && begin.elapsed() < Duration::from_secs(3) {
        codes.push(status(&ask(endpoint.address(), OPEN.as_bytes())).to_owned());
    }
    assert_eq!(codes.last().map(String::as_str), Some("503"));
    for stream in hang {
        assert_eq!(status(&rest(stream)), "408");
    }
    let begin = Instant::now();
    while status(&ask(endpoint.address(), OPEN.as_bytes())) != "200" {
        assert!(begin.elapsed() < Duration::from_secs(5), "places are given back");
    }
}

#[test]
fn of_a_hundred_clients_at_once_each_is_answered_and_no_more_are_served_than_may_be() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let endpoint =
        endpoint(Limits { request_time: Duration::from_secs(20), ..limits() }, |format| {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            NOW.fetch_sub(1, Ordering::SeqCst);
            page(format)
        });
    let (at, together) = (endpoint.address(), Arc::new(Barrier::new(100)));
    let client = |_| {
        let together = Arc::clone(&together);
        thread::spawn(move || {
            together.wait();
            status(&ask(at, OPEN.as_bytes())).to_owned()
        })
    };
    let clients: Vec<_> = (0..100).map(client).collect();
    let codes: Vec<String> = clients.into_iter().map(|c| c.join().unwrap()).collect();
    let of = |code: &str| codes.iter().filter(|c| *c == code).count();
    assert_eq!(of("200") + of("503"), 100, "{codes:?}");
    assert!(of("200") >= limits().connections && of("503") > 0, "{} served", of("200"));
    assert_eq!(MOST.load(Ordering::SeqCst), 1, "one reads the records at a time");
    assert_eq!(status(&ask(at, OPEN.as_bytes())), "200");
}

#[test]
fn a_client_that_does_not_take_its_answer_is_let_go() {
    let limits = Limits { connections: 1, answer_time: Duration::from_millis(500), ..limits() };
    let endpoint = endpoint(limits, |_| Ok("x".repeat(64 << 20)));
    let mut never = connect(endpoint.address());
    never.write_all(OPEN.as_bytes()).unwrap();
    let begin = Instant::now();
    thread::sleep(Duration::from_millis(200));
    while status(&ask(endpoint.address(), b"GET / HTTP/1.1\r\n\r\n")) != "200" {
        assert!(begin.elapsed() < Duration::from_secs(10), "its place is given back");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(
        begin.elapsed() >= Duration::from_millis(400),
        "{:?}: it had its time",
        begin.elapsed()
    );
    assert!(rest(never).len() < 64 << 20, "the rest is not sent");
}

#[test]
fn numbers_that_cannot_be_read_are_said_and_the_next_client_is_served() {
    let mut fails = [true, false].into_iter();
    let endpoint = endpoint(limits(), move |format| {
        if fails.next() == Some(true) {
            Err("map x: cannot open it".to_owned())
        } else {
            page(format)
        }
    });
    let answer = ask(endpoint.address(), OPEN.as_bytes());
    assert_eq!((status(&answer), body(&answer)), ("503", "map x: cannot open it\n"));
    assert_eq!(status(&ask(endpoint.address(), OPEN.as_bytes())), "200");
}

#[test]
fn what_shall_come_first_is_done_in_the_endpoints_own_thread_and_a_dropped_one_frees_its_port() {
    let (tell, told) = std::sync::mpsc::channel();
    let first = move || tell.send(thread::current().name().map(str::to_owned)).unwrap();
    let endpoint = serve(TcpListener::bind("127.0.0.1:0").unwrap(), limits(), first, page).unwrap();
    assert_eq!(told.recv().unwrap().as_deref(), Some("metrics"));
    let at = endpoint.address();
    drop(endpoint);
    assert!(TcpStream::connect(at).is_err());
    TcpListener::bind(at).unwrap();
}
