//! The numbers over HTTP: `GET /metrics`, and a page at `/` that leads there.
//!
//! Each request is answered by a thread of its own, and each wait for a peer ends by itself, so
//! that a slow one holds up no other.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

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
    let server = Server::from_listener(listener, None).map_err(|e| failed(&e.to_string()))?;
    os::note_interrupts();
    os::survive_closed_pipes();
    console::note(&format!("listening on http://{local}/metrics"));
    let (meter, answering) = (Arc::new(meter), Arc::new(AtomicUsize::new(0)));
    while !os::interrupted() {
        let request = match server.recv_timeout(NAP) {
            Ok(Some(request)) => request,
            Ok(None) => continue,
            Err(e) => return Err(failed(&said(&e))),
        };
        // Relaxed: a count that orders nothing; this thread alone counts up.
        if answering.fetch_add(1, Relaxed) >= ANSWERS_MAX {
            answering.fetch_sub(1, Relaxed);
            // The peer is not waited for here: its connection is closed.
            drop(request);
            continue;
        }
        let (meter, answering) = (Arc::clone(&meter), Arc::clone(&answering));
        std::thread::spawn(move || {
            answer(request, &meter);
            answering.fetch_sub(1, Relaxed);
        });
    }
    Ok(())
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
