//! The collector rotel, which prints the spans that it receives.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for the collector.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// A running collector, without an exporter.
pub(crate) struct Rotel {
    process: Child,
    http: SocketAddr,
    log: PathBuf,
}

impl Rotel {
    /// Starts one, and waits until it listens.
    pub(crate) async fn start() -> Self {
        let log = std::env::temp_dir().join(format!("scoop-rotel-{}", uuid::Uuid::new_v4().simple()));
        let (grpc, http) = (free_address(), free_address());
        let process = Command::new(program())
            .arg("start")
            .args(["--otlp-grpc-endpoint", &grpc.to_string(), "--otlp-http-endpoint", &http.to_string()])
            .args(["--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .stdin(Stdio::null())
            .stdout(File::create(&log).expect("a file can be made"))
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be run");
        let rotel = Self { process, http, log };
        until("rotel listens", async || tokio::net::TcpStream::connect(http).await.is_ok()).await;
        rotel
    }

    /// Its address, as exporters of OpenTelemetry take it.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.http)
    }

    /// All spans that it has received, once so many of this name are among them.
    pub(crate) async fn received_after(&self, count: usize, name: &str) -> Received {
        let read = || Received::parse(&fs::read_to_string(&self.log).unwrap_or_default());
        until(name, async || read().named(name).len() >= count).await;
        read()
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        drop(fs::remove_file(&self.log));
    }
}

/// A wheel of Python has it.
fn program() -> PathBuf {
    let variable = std::env::var_os("ROTEL_AGENT").map(PathBuf::from);
    let program = variable.unwrap_or_else(|| "rotel-agent".into());
    let runs = Command::new(&program).arg("--version").output().is_ok_and(|it| it.status.success());
    assert!(
        runs,
        "this test needs the collector rotel: `pip install rotel==0.0.1a15`, and `ROTEL_AGENT` set to the path of `rotel-agent` \
         in its package"
    );
    program
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.local_addr().expect("it has an address")
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < RETRY_FOR, "timed out waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the collector has printed.
#[derive(Debug, Default)]
pub(crate) struct Received {
    services: Vec<String>,
    spans: Vec<Span>,
}

#[derive(Debug, Default)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    /// The ids of trace and span.
    pub(crate) links: Vec<(String, String)>,
    attributes: Vec<(String, String)>,
}

impl Received {
    fn parse(text: &str) -> Self {
        let mut received = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':').map(|(key, value)| (key.trim(), value.trim()))
            else {
                if line.starts_with("Span #") {
                    received.spans.push(Span::default());
                }
                continue;
            };
            let attribute =
                || Some((key.strip_prefix("-> ")?, value.strip_prefix("Str(")?.strip_suffix(')')?));
            let Some(span) = received.spans.last_mut() else {
                received.services.extend(
                    attribute().filter(|(key, _)| *key == "service.name").map(|(_, value)| value.to_owned()),
                );
                continue;
            };
            match key {
                "Trace ID" => span.trace = value.to_owned(),
                "Parent ID" => span.parent = value.to_owned(),
                "ID" => span.id = value.to_owned(),
                "Name" => span.name = value.to_owned(),
                "Kind" => span.kind = value.to_owned(),
                "-> Trace ID" => span.links.push((value.to_owned(), String::new())),
                "-> ID" => {
                    span.links.iter_mut().last().into_iter().for_each(|link| link.1 = value.to_owned())
                }
                _ => {
                    span.attributes.extend(attribute().map(|(key, value)| (key.to_owned(), value.to_owned())))
                }
            }
        }
        received
    }

    /// The names of the services that sent spans, each once.
    pub(crate) fn services(&self) -> Vec<&str> {
        let mut services: Vec<_> = self.services.iter().map(String::as_str).collect();
        services.dedup();
        services
    }

    pub(crate) fn named(&self, name: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }

    /// The only span of this name.
    pub(crate) fn only(&self, name: &str) -> &Span {
        let [span] = self.named(name)[..] else { panic!("not one span `{name}`: {self:#?}") };
        span
    }
}

impl Span {
    /// The value of an attribute; empty if there is none.
    pub(crate) fn attribute(&self, key: &str) -> &str {
        self.attributes.iter().find(|(it, _)| it == key).map_or("", |(_, value)| value)
    }
}
