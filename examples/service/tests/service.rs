//! Runs the example `service` of the guide, ends it while a page is open, and compares it with the manifest for Kubernetes.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use saphyr::{LoadableYamlNode as _, Yaml};

/// The manifest, its page, and the program that it runs.
const MANIFEST: &str = include_str!("../../../docs/production/kubernetes.yaml");
const PAGE: &str = include_str!("../../../docs/production.md");
const PROGRAM: &str = include_str!("../src/main.rs");

/// The time for which the health of a program takes at most, and which a blocked step adds to a shutdown.
const HEALTH_SECONDS_MAX: i64 = 4;
const BLOCKED_SECONDS_MAX: i64 = 2;

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

#[test]
fn probes_of_the_manifest_are_answered_by_the_service() {
    let deployment = object("Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let service = Service::start();
    let mut paths = vec![];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let probe = &container[probe];
        let path = probe["httpGet"]["path"].as_str().expect("it has a path");
        assert_eq!(probe["httpGet"]["port"].as_str(), Some("http"), "{path}");
        assert!(service.request("GET", path, "").starts_with("HTTP/1.1 200 "), "{path}");
        paths.push(path);
    }
    assert_eq!(paths, ["/live", "/live", "/ready"], "an outage of the database is no reason to restart");
    assert!(service.request("GET", "/dead", "").starts_with("HTTP/1.1 404 "));
}

#[test]
fn manifest_has_one_port_and_enough_time_for_health_and_shutdown() {
    let deployment = object("Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let port = &container["ports"][0];
    let listen = &container["env"][0];
    assert_eq!((port["name"].as_str(), listen["name"].as_str()), (Some("http"), Some("LISTEN")));
    let address = listen["value"].as_str().and_then(|value| value.rsplit_once(':')).expect("a port");
    assert_eq!(port["containerPort"].as_integer(), address.1.parse().ok());
    let service = object("Service");
    assert_eq!(service["spec"]["ports"][0]["targetPort"].as_str(), Some("http"));
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        (&service["spec"]["selector"], &deployment["spec"]["selector"]["matchLabels"]),
        (labels, labels)
    );

    let timeout = container["readinessProbe"]["timeoutSeconds"].as_integer();
    assert!(timeout > Some(HEALTH_SECONDS_MAX), "{timeout:?}");
    let grace = pod["terminationGracePeriodSeconds"].as_integer().expect("a number");
    for text in [PROGRAM, PAGE] {
        let within = shutdown_seconds(text);
        assert!(grace > within + BLOCKED_SECONDS_MAX, "{grace} s for a shutdown within {within} s");
    }
}

/// The object of this kind in the manifest, which has one.
fn object(kind: &str) -> Yaml<'static> {
    let objects = Yaml::load_from_str(MANIFEST).expect("it is YAML");
    let mut found: Vec<_> = objects.into_iter().filter(|it| it["kind"].as_str() == Some(kind)).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)
}

/// The time in the only call of `shutdown_within` in a text.
fn shutdown_seconds(text: &str) -> i64 {
    let calls: Vec<_> = text.split("shutdown_within(Duration::from_secs(").skip(1).collect();
    assert_eq!(calls.len(), 1);
    calls[0].split(')').next().and_then(|seconds| seconds.parse().ok()).expect("a number of seconds")
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
