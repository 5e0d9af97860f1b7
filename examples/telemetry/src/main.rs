//! Traces and metrics: an order and its parcel as one trace of OpenTelemetry, sent to a collector by OTLP, and the page of
//! metrics that Prometheus would read.
//!
//! ```text
//! cargo run -p telemetry                                                         # prints the trace itself
//! OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 cargo run -p telemetry       # sends it to a collector
//! ```
//!
//! Without that variable the example receives the spans by itself, on a port of the loopback interface.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use scoop::prelude::*;
use serde_json::Value;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, info, info_span};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

#[derive(Message, Serialize, Deserialize)]
struct Order {
    id: u64,
    address: String,
}

#[derive(Message, Serialize, Deserialize)]
struct Parcel {
    order: u64,
    address: String,
}

#[derive(Default)]
struct Orders;

#[saga]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = refund)]
    async fn charge(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        info!(order.id, "charged"); // an event of the span of this step
        Ok(())
    }

    async fn refund(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        info!(order.id, "refunded");
        Ok(())
    }

    #[step]
    async fn send(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        scope.launch(Parcel { order: order.id, address: order.address.clone() }).await?;
        Ok(())
    }
}

#[derive(Default)]
struct Couriers;

#[saga]
#[subscribes(Parcel)]
impl Couriers {
    #[step]
    async fn deliver(&self, scope: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        // What a request to another service would have as its header.
        let header = scope.trace_context().map(|trace| trace.traceparent());
        info!(parcel.order, header, "asking a courier");
        if parcel.address.is_empty() {
            return Err(Error::msg(format!("parcel {} has no address", parcel.order)));
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let receiver = match std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT") {
        Some(_) => None,
        None => Some(Receiver::start().await?),
    };
    let tracer = tracer(receiver.as_ref())?;
    let metrics = metrics()?;

    // Before the program starts Scoop. The filter keeps the spans of the exporter's own requests out.
    let traces = tracing_opentelemetry::layer().with_tracer(tracer.tracer("telemetry"));
    // A place in the source of Scoop, one of the threads of a step, and two readings of the clock whenever a step waits.
    let traces = traces.with_location(false).with_threads(false).with_tracked_inactivity(false);
    // Nothing is collected for traces that the sampler leaves out. Here it takes all.
    let traces = traces.with_filter(scoop::SampledTraces);
    tracing_subscriber::registry().with(LevelFilter::INFO).with(traces).init();

    let scoop = Scoop::builder().embedded().start().await?;
    for (id, address) in [(1, "Lübeck"), (2, "")] {
        let order = Order { id, address: address.into() };
        // A web server has such a span for each request.
        let request = info_span!("POST /orders", otel.kind = "server", order.id);
        let order = scoop.launch(order).into_future().instrument(request).await?;
        println!(
            "order {id}: {}",
            if order.wait().await? == Outcome::Committed { "sent" } else { "refunded" }
        );
    }
    scoop.shutdown().await?;

    // Sends what is left. It blocks, and the receiver is on the same runtime.
    tokio::task::spawn_blocking(move || tracer.shutdown()).await??;
    if let Some(receiver) = receiver {
        receiver.check_and_print();
    }
    let page = metrics.render();
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with("scoop_root_runs_total")).collect();
    println!("\n{}", lines.join("\n"));
    assert_eq!(lines.len(), 2, "one order was sent, and one rolled back: {page}");
    Ok(())
}

/// Exports spans in batches.
fn tracer(receiver: Option<&Receiver>) -> Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpJson);
    let exporter = match receiver {
        Some(receiver) => exporter.with_endpoint(&receiver.url),
        None => exporter,
    };
    let exporter = exporter.build()?;
    let resource = Resource::builder().with_service_name("scoop-example").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// Records metrics for a page that Prometheus reads. With the feature `http-listener` the exporter serves it, too.
fn metrics() -> Result<PrometheusHandle> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    Ok(handle)
}

/// A receiver of spans, in place of a collector.
struct Receiver {
    url: String,
    spans: Received,
}

type Received = Arc<Mutex<Vec<Value>>>;

impl Receiver {
    async fn start() -> Result<Self> {
        let spans = Received::default();
        let router = Router::new().route("/v1/traces", post(receive)).with_state(spans.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/v1/traces", listener.local_addr()?);
        tokio::spawn(axum::serve(listener, router).into_future());
        Ok(Self { url, spans })
    }

    /// Prints the received spans as trees. Each trace has all spans of its order.
    fn check_and_print(&self) {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut children: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for span in spans.iter() {
            children.entry(text(span, "parentSpanId")).or_default().push(span);
        }
        for siblings in children.values_mut() {
            siblings.sort_by_key(|span| text(span, "startTimeUnixNano"));
        }
        for request in &children[""] {
            println!("\ntrace {}", text(request, "traceId"));
            print(request, &children, 1);
        }
        assert_eq!(children[""].len(), 2, "each order is one trace: all other spans have a parent");
        let named = |name: &str| spans.iter().filter(|span| text(span, "name") == name).count();
        assert_eq!(["couriers.deliver", "orders.Rollback of charge[0,]"].map(named), [2, 1]);
    }
}

async fn receive(State(spans): State<Received>, body: Bytes) -> impl IntoResponse {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let below = |values: &Value, field: &str| values[field].as_array().cloned().unwrap_or_default();
    let resources = below(&request, "resourceSpans").into_iter();
    let scopes = resources.flat_map(|resource| below(&resource, "scopeSpans"));
    let received = scopes.flat_map(|scope| below(&scope, "spans"));
    spans.lock().unwrap_or_else(PoisonError::into_inner).extend(received);
    ([(CONTENT_TYPE, "application/json")], "{}")
}

fn text<'a>(span: &'a Value, field: &str) -> &'a str {
    span[field].as_str().unwrap_or_default()
}

fn print(span: &Value, children: &BTreeMap<&str, Vec<&Value>>, depth: usize) {
    let failed = if span["status"]["code"] == 2 { "  failed" } else { "" };
    println!("{:indent$}{}{failed}", "", text(span, "name"), indent = 4 * depth);
    for child in children.get(text(span, "spanId")).into_iter().flatten() {
        print(child, children, depth + 1);
    }
}
