//! Traces of OpenTelemetry on PostgreSQL: stored contexts, other processes, forged rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_sdk::trace::Sampler;
use tracing::Instrument as _;
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::Layer;

use super::*;
use crate::support::Database;
use crate::support::traces::Traces;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Order;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "parcels")]
struct Parcel;

#[derive(Default)]
struct Orders;

#[saga(name = "orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        sqlx::query("SELECT 1").execute(scope.tx().await?).await?;
        scope.launch(Parcel).await?;
        scope.sleep(Duration::from_secs(1_000_000)).await
    }

    async fn release(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn charge(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Err(Error::msg("card declined").into_permanent())
    }
}

#[derive(Default)]
struct Parcels;

#[saga(name = "parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step(rollback = unpack)]
    async fn pack(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Ok(())
    }

    async fn unpack(&self, _: &mut Scope<'_>, _: &Parcel, _: &Failure) -> Result<()> {
        Ok(())
    }
}

async fn is_asleep(order: &scoop::Handle) -> Result<()> {
    order.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Sleeping)).await?;
    Ok(())
}

/// The names of the spans that were below a span of another process, in alphabetical order.
fn below_another_process(traces: &Traces) -> Vec<String> {
    let spans = traces.spans().into_iter().filter(|span| span.parent_span_is_remote);
    let mut names: Vec<_> = spans.map(|span| span.name.into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn another_process_continues_the_trace_of_a_hierarchy() -> Result<()> {
    let db = Database::new().await;
    let (launching, guard) = Traces::listen();
    let scoop = db.start((Orders, Parcels)).await?;
    let order = scoop.launch(Order).into_future().instrument(tracing::info_span!("checkout")).await?;
    is_asleep(&order).await?;
    scoop.shutdown().await?;
    let begun = "checkout
  launch root-topic
    run orders
      orders.reserve
        run parcels
          parcels.pack
";
    assert_eq!(launching.tree(), begun);
    drop(guard);

    let (continuing, _guard) = Traces::listen();
    let scoop = db.start((Orders, Parcels)).await?;
    db.execute("UPDATE scoop.run SET ready_at = clock_timestamp() WHERE handler = 'orders'").await;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    // The run of the failed step and those of the rollback of child and parent.
    assert_eq!(below_another_process(&continuing), ["run orders", "run orders", "run parcels"]);
    for name in ["orders.charge", "parcels.Rollback of pack[0,]", "orders.Rollback of reserve[0,]"] {
        assert_eq!(continuing.of(name).len(), 1, "{name} in {}", continuing.tree());
    }
    assert_eq!(launching.ids().len(), 1);
    assert_eq!(continuing.ids(), launching.ids());
    Ok(())
}

#[derive(Default)]
struct Couriers;

#[saga(name = "couriers")]
#[subscribes(Order)]
impl Couriers {
    #[step]
    async fn ask(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        async {
            let known = scope.trace_context().expect("the trace goes on");
            assert!(known.traceparent().ends_with("-00"), "{known:?}");
            scope.launch(Parcel).await
        }
        .instrument(tracing::info_span!("a request of the step"))
        .await?;
        Ok(())
    }
}

/// Counts the spans of steps, as a subscriber for logs does that prints them.
#[derive(Clone, Default)]
struct Steps(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Steps {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: tracing_subscriber::layer::Context<'_, S>) {
        self.0.fetch_add(usize::from(span.metadata().name() == "step"), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn trace_that_is_not_sampled_goes_on_without_spans() -> Result<()> {
    let (db, steps) = (Database::new().await, Steps::default());
    let (traces, _guard) = Traces::listen_beside(Sampler::AlwaysOff, steps.clone());
    let scoop = db.start((Couriers, Parcels)).await?;
    let order = scoop.launch(Order).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(traces.tree(), "");
    assert_eq!(steps.0.load(Ordering::Relaxed), 2, "log lines of both steps have a span");
    let stored =
        "SELECT DISTINCT coalesce(regexp_replace(context ->> 'traceparent', '-[0-9a-f]{16}-', ' '), 'none')
        FROM scoop.message_event";
    let [trace] = &*db.texts(stored).await else { panic!("all events are of one trace") };
    assert!(trace.ends_with(" 00"), "{trace}");
    Ok(())
}

#[tokio::test]
async fn forged_trace_context_in_a_row_fails_no_run() -> Result<()> {
    for forged in [
        r#"{"traceparent": 7}"#,
        r#"{"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"}"#,
        r#"{"traceparent": {"a": [null]}, "tracestate": []}"#,
    ] {
        let db = Database::new().await;
        let (traces, _guard) = Traces::listen();
        let scoop = db.start((Orders, Parcels)).await?;
        let order = scoop.launch(Order).await?;
        is_asleep(&order).await?;
        db.execute(&format!(
            "UPDATE scoop.run SET context = '{forged}', ready_at = clock_timestamp() WHERE handler = 'orders'"
        ))
        .await;
        assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
        scoop.shutdown().await?;
        assert_eq!(traces.of("orders.charge").len(), 1, "{}", traces.tree());
        assert_eq!(traces.ids().len(), 2, "the run begins a trace: {}", traces.tree());
    }
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Shipment {
    number: u32,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "traces.paid")]
struct Paid;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "traces.returned")]
struct Returned;

#[derive(Default)]
struct Shipments;

#[saga(name = "shipments")]
#[subscribes(Shipment)]
impl Shipments {
    #[step(awaits(Paid, by = number))]
    async fn ship(&self, _: &mut Scope<'_>, _: &Shipment, _: &Paid) -> Result<()> {
        Ok(())
    }

    #[step(awaits(Returned, by = number))]
    async fn refund(&self, _: &mut Scope<'_>, _: &Shipment, _: &Returned) -> Result<()> {
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, shipment: &Shipment) -> Result<String> {
        Ok(shipment.number.to_string())
    }
}

/// Pays for a shipment in a step.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "cash")]
struct Cash {
    number: u32,
}

#[derive(Default)]
struct Tills;

#[saga(name = "tills")]
#[subscribes(Cash)]
impl Tills {
    #[step]
    async fn take(&self, scope: &mut Scope<'_>, cash: &Cash) -> Result<()> {
        scope.signal(Paid, cash.number.to_string())
    }
}

/// The ids of the spans to which each span of this name is linked, in the order in which these began.
fn links(traces: &Traces, name: &str) -> Vec<Vec<String>> {
    let spans = traces.of(name).into_iter();
    spans.map(|it| it.links.iter().map(|link| link.span_context.span_id().to_string()).collect()).collect()
}

/// The ids of the spans of this name.
fn span_ids(traces: &Traces, name: &str) -> Vec<String> {
    traces.of(name).iter().map(|span| span.span_context.span_id().to_string()).collect()
}

#[tokio::test]
async fn step_that_goes_on_with_a_signal_is_linked_to_its_sender() -> Result<()> {
    let db = Database::new().await;
    let (traces, _guard) = Traces::listen();
    let scoop = db.start((Shipments, Tills)).await?;
    // One is kept, and one comes to a run that awaits it.
    assert_eq!(scoop.signal(Paid, "1").await?, 0);
    let shipment = scoop.launch(Shipment { number: 1 }).await?;
    let refunds = |tree: &Tree| {
        tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)
            && tree.to_string().contains("await a signal for refund")
    };
    shipment.comes_to(refunds).await?;
    assert_eq!(scoop.signal(Returned, "1").await?, 1);
    assert_eq!(shipment.ends().await?, Outcome::Committed);
    // One is of a step, and delivered after that; one is part of a transaction.
    let shipment = scoop.launch(Shipment { number: 2 }).await?;
    assert_eq!(scoop.launch(Cash { number: 2 }).await?.ends().await?, Outcome::Committed);
    shipment.comes_to(refunds).await?;
    let mut transaction = db.pool().begin().await?;
    assert!(scoop.signal(Returned, "2").in_transaction(&mut transaction).await?);
    transaction.commit().await?;
    assert_eq!(shipment.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    let kept = &span_ids(&traces, "signal traces.paid")[0];
    let [awaited, of_caller] = &span_ids(&traces, "signal traces.returned")[..] else {
        panic!("{}", traces.tree());
    };
    let of_step = &span_ids(&traces, "tills.take")[0];
    let of =
        |step: &str| links(&traces, step).into_iter().filter(|links| !links.is_empty()).collect::<Vec<_>>();
    assert_eq!(of("shipments.ship"), [[kept.clone()], [of_step.clone()]]);
    assert_eq!(of("shipments.refund"), [[awaited.clone()], [of_caller.clone()]]);
    Ok(())
}

/// The function that a role without rights calls; other programs may leave the span out, or write what is no span.
#[tokio::test]
async fn signal_from_sql_is_linked_if_it_names_a_span() -> Result<()> {
    let db = Database::new().await;
    let (traces, _guard) = Traces::listen();
    let scoop = db.start((Shipments,)).await?;
    for (signal, span) in [("traces.paid", "00f067aa0ba902b7"), ("traces.returned", "00F067AA0BA902B7")] {
        let header = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span}-01");
        let sent =
            format!("SELECT scoop.send_signal(gen_random_uuid(), '{signal}', '3', 'null', 60, '{header}')");
        db.execute(&sent).await;
    }
    let shipment = scoop.launch(Shipment { number: 3 }).await?;
    assert_eq!(shipment.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(links(&traces, "shipments.ship"), [vec![], vec!["00f067aa0ba902b7".to_owned()]]);
    assert_eq!(links(&traces, "shipments.refund"), [const { Vec::<String>::new() }; 2]);
    Ok(())
}
