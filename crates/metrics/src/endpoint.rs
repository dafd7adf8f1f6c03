//! Serves metrics over HTTP/1.1, for any client: GET /metrics and GET /, and nothing else.
//!
//! It never makes the daemon wait. It has threads of its own, at most `Limits::connections` at once
//! beside the one that accepts. Each connection has one request, and so long and no longer to send
//! it and to take the answer.

use crate::{
    Format,
    request::{Asked, Refusal, asked, head_end},
};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What a client may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that are served at once; those beyond get 503.
    pub connections: usize,
    /// Bytes of a request's head.
    pub request_bytes: usize,
    /// Until the head has come whole.
    pub request_time: Duration,
    /// Until the answer has been taken whole.
    pub answer_time: Duration,
}

impl Default for Limits {
    /// A scraper or two and a curious admin, with room for a few that hang; heads of Prometheus
    /// have 500 bytes.
    fn default() -> Self {
        Limits {
            connections: 8,
            request_bytes: 8192,
            request_time: Duration::from_secs(2),
            answer_time: Duration::from_secs(5),
        }
    }
}

/// Makes the text of the metrics, or says why they cannot be read.
type Page = Box<dyn FnMut(Format) -> Result<String, String> + Send>;

/// An endpoint that serves; dropped, it ends.
pub struct Endpoint {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Served {
    limits: Limits,
    page: Mutex<Page>,
    busy: AtomicUsize,
}

/// Serves `page` at `listener`. `first` is called in the endpoint's own thread, whose priority the
/// others inherit.
///
/// # Errors
/// When the listener has no address, or there can be no thread.
pub fn serve(
    listener: TcpListener,
    limits: Limits,
    first: impl FnOnce() + Send + 'static,
    page: impl FnMut(Format) -> Result<String, String> + Send + 'static,
) -> io::Result<Endpoint> {
    let address = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let served =
        Arc::new(Served { limits, page: Mutex::new(Box::new(page)), busy: AtomicUsize::new(0) });
    let stopped = Arc::clone(&stop);
    let accept = move || {
        first();
        while !stopped.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) if !stopped.load(Ordering::Relaxed) => take(&served, stream),
                Ok(_) => {}
                // No more files, or a client that left at once: neither ends by asking again at
                // once.
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    };
    let thread = thread::Builder::new().name("metrics".to_owned()).spawn(accept)?;
    Ok(Endpoint { address, stop, thread: Some(thread) })
}

impl Endpoint {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread waits for a client: this is the last.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Serves a connection in a thread of its own, if there may be one more.
fn take(served: &Arc<Served>, mut stream: TcpStream) {
    let refuse = |stream: &mut TcpStream| {
        // It fits into the socket's buffer, so no thread waits for the client; should it not, so be
        // it.
        let _ = stream.set_nonblocking(true);
        let _ = stream.write_all(&response(
            Refusal::Unavailable.status(),
            PLAIN,
            Refusal::Unavailable.text(),
        ));
    };
    if served.busy.fetch_add(1, Ordering::AcqRel) >= served.limits.connections {
        served.busy.fetch_sub(1, Ordering::AcqRel);
        return refuse(&mut stream);
    }
    let one = Place(Arc::clone(served));
    let serve = move || {
        let _ = one.0.connection(&mut stream); // a client that has gone is its own affair
    };
    // Without a thread the closure is dropped, and with it the connection and its place.
    let _ = thread::Builder::new().name("metrics-client".to_owned()).spawn(serve);
}

/// A place among the connections that are served; given back when dropped, also by a thread that
/// panics.
struct Place(Arc<Served>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
const INDEX: &str = "Tandem, a CPU scheduler for virtual machines.\n\n/metrics  OpenMetrics for \
    Prometheus; \
                     'tandem metrics --list' explains each metric\n";

impl Served {
    fn connection(&self, stream: &mut TcpStream) -> io::Result<()> {
        let asked = self.read(stream)?;
        let answer = match asked {
            Asked::Index => response("200 OK", PLAIN, INDEX),
            Asked::Refused(why) => response(why.status(), PLAIN, why.text()),
            Asked::Metrics(format) => {
                // One at a time; a page that panicked once is not trusted again.
                let made = self.page.lock().map_or_else(
                    |_| Err("metrics: their reader has failed; restart the daemon".to_owned()),
                    |mut page| page(format),
                );
                match made {
                    Ok(text) => response("200 OK", format.content_type(), &text),
                    Err(why) => response(Refusal::Unavailable.status(), PLAIN, &format!("{why}\n")),
                }
            }
        };
        let end = Instant::now() + self.limits.answer_time;
        write_until(stream, &answer, end)?;
        stream.shutdown(Shutdown::Write)?;
        drain(stream, end)
    }

    /// Reads the head of a request, as long as there is time and room.
    fn read(&self, stream: &mut TcpStream) -> io::Result<Asked> {
        let end = Instant::now() + self.limits.request_time;
        let mut head = vec![];
        let mut part = [0; 1024];
        loop {
            if let Some(n) = head_end(&head) {
                return Ok(asked(&head[..n]));
            }
            if head.len() >= self.limits.request_bytes {
                return Ok(Asked::Refused(Refusal::Long));
            }
            let room = part.len().min(self.limits.request_bytes - head.len());
            match read_until(stream, &mut part[..room], end) {
                Ok(0) => return Ok(Asked::Refused(Refusal::Malformed)),
                Ok(n) => head.extend_from_slice(&part[..n]),
                Err(e) if is_late(&e) => return Ok(Asked::Refused(Refusal::Slow)),
                Err(e) => return Err(e),
            }
        }
    }
}

/// A whole response, after which the connection is closed.
fn response(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: \
            {length}\r\n{allow}X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn is_late(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Time that is left until `end`; an error if there is none, for a socket takes 0 as for ever.
fn left(end: Instant) -> io::Result<Option<Duration>> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

fn read_until(stream: &mut TcpStream, into: &mut [u8], end: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(left(end)?)?;
        match stream.read(into) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn write_until(stream: &mut TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(left(end)?)?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Takes a little of what the client still sends: closed with bytes unread, the kernel would reset
/// the connection, and the answer might never be seen.
fn drain(stream: &mut TcpStream, end: Instant) -> io::Result<()> {
    const MOST_BYTES: usize = 1 << 20;
    const MOST_TIME: Duration = Duration::from_millis(500);
    let end = end.min(Instant::now() + MOST_TIME);
    let mut part = [0; 4096];
    let mut taken = 0;
    while taken < MOST_BYTES {
        match read_until(stream, &mut part, end)? {
            0 => break,
            n => taken += n,
        }
    }
    Ok(())
}
