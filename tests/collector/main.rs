//! Traces as a collector of OpenTelemetry receives them. A binary of its own, which `cargo test` leaves out because it needs
//! the collector rotel: `cargo test --test collector`.

mod rotel;

use std::collections::BTreeSet;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use rotel::Rotel;
use scoop::InMemory;
use scoop::prelude::*;
use tokio::process::Command;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "collected.orders")]
struct Order {
    number: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "collected.parcels")]
struct Parcel;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "collected.paid")]
struct Paid;

#[derive(Default)]
struct Orders;

#[saga(name = "orders")]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn reserve(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        info!(order.number, "reserved");
        Ok(())
    }

    #[step(awaits(Paid, by = number))]
    async fn send(&self, scope: &mut Scope<'_>, _: &Order, _: &Paid) -> Result<()> {
        scope.launch(Parcel).await?;
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
        Ok(order.number.to_string())
    }
}

#[derive(Default)]
struct Parcels;

#[saga(name = "parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step]
    async fn deliver(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Err(Error::msg("no address").into_permanent())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_receives_resource_spans_parents_links_and_failures() -> Result<()> {
    let rotel = Rotel::start().await;
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpJson);
    let exporter = exporter.with_endpoint(format!("{}/v1/traces", rotel.endpoint())).build()?;
    let resource = Resource::builder().with_service_name("scoop-collected").build();
    let tracer = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let layer = tracing_opentelemetry::layer().with_tracer(tracer.tracer("collected"));
    let traces = tracing_subscriber::registry().with(LevelFilter::INFO).with(layer);
    // The engine runs on several threads.
    tracing::subscriber::set_global_default(traces)?;

    let database = InMemory::new();
    let sagas = Scoop::builder().in_memory_database(&database).only::<Orders>().only::<Parcels>();
    let scoop = sagas.start().await?;
    let request = info_span!("POST /orders", otel.kind = "server");
    let order = scoop.launch(Order { number: 7 }).into_future().instrument(request).await?;
    scoop.signal(Paid, "7").await?;
    assert!(matches!(order.wait().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    // Sends what is left. It blocks.
    tokio::task::spawn_blocking(move || tracer.shutdown()).await??;

    let received = rotel.received_after(1, "POST /orders").await;
    assert_eq!(received.services(), ["scoop-collected"]);
    let of = |name: &str| received.only(name);
    let parents = [
        ("launch collected.orders", "POST /orders"),
        ("orders.reserve", "run orders"),
        ("run parcels", "orders.send"),
        ("parcels.deliver", "run parcels"),
    ];
    for (child, parent) in parents {
        let parents = received.named(parent).into_iter().map(|span| &span.id);
        assert!(
            parents.clone().any(|id| *id == of(child).parent),
            "{child} is not below {parent}: {received:#?}"
        );
        let trace = &of("POST /orders").trace;
        assert_eq!(&of(child).trace, trace, "{child}");
    }
    let signal = of("signal collected.paid");
    assert_ne!(signal.trace, of("POST /orders").trace);
    let linked: Vec<_> = received.named("orders.send").into_iter().flat_map(|span| &span.links).collect();
    assert_eq!(linked, [&(signal.trace.clone(), signal.id.clone())]);
    assert_eq!(of("POST /orders").kind, "SPAN_KIND_SERVER");
    assert_eq!(signal.kind, "SPAN_KIND_PRODUCER");
    assert_eq!(of("run parcels").attribute("hierarchy"), order.id().to_string());
    assert_eq!(of("run parcels").attribute("outcome"), "rolled_back");
    assert!(of("run parcels").attribute("failure").ends_with("no address"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_example_sends_its_traces_to_the_collector() -> Result<()> {
    let rotel = Rotel::start().await;
    // `cargo test` builds the example beside the tests.
    let test = std::env::current_exe()?;
    let example = test.ancestors().nth(2).expect("the test is in a folder of the build").join("telemetry");
    assert!(example.exists(), "first run `cargo build -p telemetry`");
    let mut example = Command::new(example);
    let ran = example.env("OTEL_EXPORTER_OTLP_ENDPOINT", rotel.endpoint()).output().await?;
    assert!(ran.status.success(), "{ran:?}");
    rotel.received_after(2, "run couriers").await;
    let received = rotel.received_after(1, "orders.Rollback of charge[0,]").await;
    assert_eq!(received.services(), ["scoop-example"]);
    let traces: BTreeSet<_> = received.named("POST /orders").iter().map(|span| &span.trace).collect();
    assert_eq!(traces.len(), 2, "{received:#?}");
    for run in received.named("run couriers").into_iter().chain(received.named("run orders")) {
        assert!(traces.contains(&run.trace) && !run.parent.is_empty(), "{run:?}");
    }
    assert_eq!(received.named("orders.Rollback of charge[0,]").len(), 1, "{received:#?}");
    Ok(())
}
