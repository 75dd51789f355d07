//! The numbers over HTTP: `GET /metrics`, and a page at `/` that leads there.
//!
//! Each request is answered by a thread of its own, and each wait for a peer ends by itself, so
//! that a slow one holds up no other. The listener has the limits that its connections inherit, so
//! its own wait for one ends, too, and with it the server's thread: another one takes its place, and
//! the old one answers those that are connected to it until they are quiet.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use prometheus::TEXT_FORMAT;
use tiny_http::{Header, Method, Request, Response, Server};

use super::Meter;
use crate::failure::{Failure, Result, said};
use crate::{console, os};

/// Requests that are answered at a time.
const ANSWERS_MAX: usize = 16;
/// A connection may be quiet for so long: longer than usual between two scrapes.
const RECEIVE_MAX: Duration = Duration::from_secs(120);
/// A peer may take its answer so slowly.
const SEND_MAX: Duration = Duration::from_secs(10);
/// Between two looks whether to end.
const NAP: Duration = Duration::from_millis(100);

const PAGE: &str = "<!DOCTYPE html><html><head><title>plait metrics</title></head>\
    <body><h1>plait metrics</h1><p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

/// Serves until an interrupt.
pub fn run(address: &str, meter: Meter) -> Result<()> {
    let failed = |why: &str| {
        Failure::new(
            format!("cannot listen on {address}: {why}"),
            "give an address of this machine and a port that is free, as in `--listen 127.0.0.1:9578`",
        )
    };
    let io = |e: std::io::Error| failed(&said(&e));
    let listener = TcpListener::bind(address).map_err(io)?;
    os::limit_waits(&listener, RECEIVE_MAX, SEND_MAX).map_err(io)?;
    let local = listener.local_addr().map_err(io)?;
    os::note_interrupts();
    os::survive_closed_pipes();
    console::note(&format!("listening on http://{local}/metrics"));
    serve_on(&listener, meter).map_err(|why| failed(&why))
}

/// Serves until an interrupt, by one server after the other.
fn serve_on(listener: &TcpListener, meter: Meter) -> std::result::Result<(), String> {
    let (meter, answering) = (Arc::new(meter), Arc::new(AtomicUsize::new(0)));
    while !os::interrupted() {
        let own = listener.try_clone().map_err(|e| said(&e))?;
        let server = Server::from_listener(own, None).map_err(|e| e.to_string())?;
        serve(&server, &meter, &answering, Until::Ended);
        let (meter, answering) = (Arc::clone(&meter), Arc::clone(&answering));
        std::thread::spawn(move || serve(&server, &meter, &answering, Until::Quiet));
        // Also where no descriptor is left for a connection.
        std::thread::sleep(NAP);
    }
    Ok(())
}

/// How long a server serves, if there is no interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until its thread has ended, which takes new connections.
    Ended,
    /// Until its connections have been quiet for so long that they are closed.
    Quiet,
}

fn serve(server: &Server, meter: &Arc<Meter>, answering: &Arc<AtomicUsize>, until: Until) {
    let mut last = Instant::now();
    while !os::interrupted() {
        let request = match server.recv_timeout(NAP) {
            Ok(Some(request)) => request,
            Ok(None) | Err(_)
                if until == Until::Quiet && last.elapsed() > RECEIVE_MAX + SEND_MAX =>
            {
                return;
            }
            Err(_) if until == Until::Ended => return,
            Ok(None) | Err(_) => continue,
        };
        last = Instant::now();
        // Relaxed: a count that orders nothing; this thread alone counts up.
        if answering.fetch_add(1, Relaxed) >= ANSWERS_MAX {
            answering.fetch_sub(1, Relaxed);
            // The peer is not waited for here: its connection is closed.
            drop(request);
            continue;
        }
        let (meter, answering) = (Arc::clone(meter), Arc::clone(answering));
        std::thread::spawn(move || {
            answer(request, &meter);
            answering.fetch_sub(1, Relaxed);
        });
    }
}

fn answer(request: Request, meter: &Meter) {
    let path = request.url().split(['?', '#']).next().unwrap_or_default();
    let is_read = matches!(request.method(), Method::Get | Method::Head);
    let (code, kind, body) = match path {
        _ if !is_read => (405, "text/plain", "only GET and HEAD are answered\n".to_owned()),
        "/metrics" => (200, TEXT_FORMAT, meter.text()),
        "/" => (200, "text/html", PAGE.to_owned()),
        _ => (404, "text/plain", "there are / and /metrics\n".to_owned()),
    };
    let kind = format!("{kind}; charset=utf-8");
    let kind = Header::from_bytes("Content-Type", kind).expect("a header without line ends");
    let response = Response::from_string(body).with_status_code(code).with_header(kind);
    // A peer that has gone wants no answer.
    let _ = request.respond(response);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_listener_that_nobody_has_asked_for_longer_than_a_connection_may_be_quiet_serves_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let second = Duration::from_secs(1);
        os::limit_waits(&listener, second, second).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve_on(&listener, Meter::of(&[])));
        let mut kept = TcpStream::connect(address).unwrap();
        kept.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut ask_on = || {
            kept.write_all(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let mut answer = [0; 12];
            kept.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            // What is left of the head.
            let mut last = [0; 4];
            while &last != b"\r\n\r\n" {
                last.rotate_left(1);
                kept.read_exact(&mut last[3..]).unwrap();
            }
        };
        for quiet_ms in [0, 1500, 2500] {
            // A connection that is used goes on, whichever server took it.
            for _ in 0..quiet_ms / 500 {
                std::thread::sleep(Duration::from_millis(500));
                ask_on();
            }
            let mut peer = TcpStream::connect(address).unwrap();
            peer.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            peer.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
}
