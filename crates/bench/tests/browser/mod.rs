//! A small driver of Chromium, by its DevTools protocol over two pipes (chromium --remote-debugging-pipe).
//!
//! Messages are JSON, each followed by a zero byte: requests into the browser's descriptor 3, answers and events out of
//! its descriptor 4. Both are named pipes here, which a shell opens for it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

/// How long an answer may take: the first one includes the browser's start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
];

/// A browser with one page, ended when dropped.
pub struct Browser {
    child: Child,
    requests: File,
    messages: Receiver<Value>,
    session: Option<String>,
    number: u64,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// The program, if it is installed.
pub fn program() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        found.is_ok_and(|output| output.status.success())
    })
}

impl Browser {
    /// Starts a program and opens an empty page, whose console and network are watched.
    pub fn start(program: &str) -> Self {
        let profile = tempfile::tempdir().expect("a directory for the profile");
        let (into, out) = (profile.path().join("in"), profile.path().join("out"));
        let made = Command::new("mkfifo").args([&into, &out]).status().expect("mkfifo is there");
        assert!(made.success(), "mkfifo failed");
        let child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<"$FROM" 4>"$TO""#, program])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .env("FROM", &into)
            .env("TO", &out)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let requests = File::options().write(true).open(&into).expect("the browser's pipe");
        let answers = BufReader::new(File::open(&out).expect("the browser's pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, number, events) = (None, 0, Vec::new());
        let mut browser =
            Self { child, requests, messages, session, number, events, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    fn next(&mut self) -> Value {
        self.messages.recv_timeout(PATIENCE).expect("the browser answers in time")
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut request = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.requests.write_all(request.to_string().as_bytes()).expect("the browser listens");
        self.requests.write_all(&[0]).expect("the browser listens");
        loop {
            let message = self.next();
            if message["id"] == json!(self.number) {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Opens an address and waits until it has loaded.
    pub fn open(&mut self, address: &str) {
        // A page of its own between, so that an address that differs by its fragment only is loaded anew.
        for address in ["about:blank", address] {
            self.events.retain(|event| event["method"] != "Page.loadEventFired");
            let answer = self.call("Page.navigate", &json!({"url": address}));
            assert!(answer.get("errorText").is_none(), "{address}: {answer}");
            while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
                let message = self.next();
                self.events.push(message);
            }
        }
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Makes the window so wide and high, as on a telephone below 600 pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let mobile = width < 600;
        let parameters =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", &parameters);
    }

    /// Prefers `light` or `dark`, as a system would.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Moves the pointer to the middle of an element.
    pub fn point_at(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ));
        let event = json!({"type": "mouseMoved", "x": place[0], "y": place[1]});
        self.call("Input.dispatchMouseEvent", &event);
    }

    /// Events so far whose method is one of these.
    pub fn events(&self, methods: &[&str]) -> Vec<&Value> {
        let is_one = |event: &&Value| methods.iter().any(|method| event["method"] == *method);
        self.events.iter().filter(is_one).collect()
    }

    /// A picture of the whole page.
    pub fn picture(&mut self, path: &Path) {
        let size = self.call("Page.getLayoutMetrics", &json!({}))["cssContentSize"].clone();
        let clip = json!({
            "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1
        });
        let parameters = json!({"captureBeyondViewport": true, "clip": clip});
        let picture = self.call("Page.captureScreenshot", &parameters);
        let text = picture["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        std::fs::write(path, bytes).expect("the picture can be written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its own processes end with it; killing only the first one would leave them.
        let close = format!("{}\0", json!({"id": 0, "method": "Browser.close"}));
        let _ = self.requests.write_all(close.as_bytes());
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
