//! Traces of OpenTelemetry on PostgreSQL: stored contexts, other processes, forged rows.

use std::time::Duration;

use tracing::Instrument as _;

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
