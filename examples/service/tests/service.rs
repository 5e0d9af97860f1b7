//! Runs the example `service` of the guide, and ends it while a page is open.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time within which it has to end. The page would be open for a minute.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn service_with_an_open_page_ends_at_a_signal() {
    let mut service = Service::start();
    assert!(service.request("POST", "/orders/7", "").contains(" 202 "));
    let mut page = service.open(&format!("GET /sagas/changes?token={} HTTP/1.1", service.token), "");
    let redirect = read_until(&mut page, "\r\n\r\n");
    let cookie = redirect.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    let mut page = service.open("GET /sagas/changes HTTP/1.1", &cookie);
    assert!(read_until(&mut page, "data: changed\n\n").contains("text/event-stream"));

    let id = service.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let since = Instant::now();
    assert!(service.child.wait().unwrap().success());
    assert!(since.elapsed() < ENDS_WITHIN, "it took {:?}", since.elapsed());
}

/// The running example.
struct Service {
    child: Child,
    address: String,
    token: String,
}

impl Service {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_service"));
        let mut child = command.env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut first).unwrap();
        // What it writes later is of no interest, but its pipe must not break.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let (url, token) = first.trim().split_once("?token=").expect("its first line has a token");
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/sagas").unwrap().to_owned();
        Self { child, address, token: token.to_owned() }
    }

    /// Sends a request, and returns the connection.
    fn open(&self, line: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        stream.write_all(format!("{line}\r\nHost: {host}\r\n{headers}\r\n").as_bytes()).unwrap();
        stream
    }

    fn request(&self, method: &str, path: &str, headers: &str) -> String {
        let mut stream =
            self.open(&format!("{method} {path} HTTP/1.1"), &format!("Connection: close\r\n{headers}"));
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer up to and including these bytes.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let (mut read, mut byte) = (vec![], [0]);
    while !read.ends_with(end.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}
