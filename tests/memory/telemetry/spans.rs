//! Spans of `tracing`: those that the guide lists, with their fields, whether or not a tracer wants them.

use super::guide_events::{PAGE, quoted};
use super::*;

/// Name, target and fields of a span.
type SpanRow = (String, String, BTreeSet<String>);

/// Parses the table of the guide.
fn listed() -> BTreeSet<SpanRow> {
    let (_, spans) = PAGE.split_once("\n## Spans\n").expect("the guide lists spans");
    let spans = spans.split_once("\n## ").map_or(spans, |(spans, _)| spans);
    let row = |line: &str| match &line.split('|').collect::<Vec<_>>()[..] {
        [_, name, target, fields, ..] => {
            let target = quoted(target).pop()?;
            Some((quoted(name).pop()?, target, quoted(fields).into_iter().collect()))
        }
        _ => None,
    };
    spans.lines().filter_map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn spans_are_those_of_the_guide() -> Result<()> {
    let (events, _guard) = Events::listen();
    outcomes().await?;
    let opened = events.spans("scoop::").into_iter().map(|span| {
        let fields = span.metadata.fields().iter().map(|field| field.name().to_owned()).collect();
        assert_eq!(span.metadata.level().as_str(), "INFO");
        (span.metadata.name().to_owned(), span.metadata.target().to_owned(), fields)
    });
    assert_eq!(opened.collect::<BTreeSet<_>>(), listed());
    Ok(())
}

/// The value of a field in each span of this name, in the order in which they began.
fn values(events: &Events, name: &str, field: &str) -> Vec<String> {
    let spans = events.spans("scoop::").into_iter().filter(|span| span.metadata.name() == name);
    spans.map(|span| span.fields.get(field).cloned().unwrap_or_default()).collect()
}

#[tokio::test(start_paused = true)]
async fn spans_of_a_failed_hierarchy_name_their_outcomes() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { child: true, ..Order::default() }).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    shop.scoop.shutdown().await?;
    assert_eq!(values(&events, "launch", "hierarchy"), [order.id().to_string()]);
    assert_eq!(values(&events, "run", "outcome"), ["waiting", "rolled_back", "rolled_back"]);
    assert_eq!(values(&events, "run", "otel.status_code"), ["", "ERROR", "ERROR"]);
    assert_eq!(values(&events, "run", "is_root"), ["true", "false", "true"]);
    assert_eq!(
        values(&events, "step", "step"),
        ["reserve", "pack", "reserve", "Rollback of reserve[0,]", "Rollback of reserve[0,]"]
    );
    assert_eq!(values(&events, "step", "kind"), ["step", "step", "child_failure", "compensation", "finally"]);
    assert_eq!(
        values(&events, "step", "outcome"),
        ["succeeded", "failed", "failed", "succeeded", "succeeded"]
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn run_that_sleeps_has_a_span_for_each_time_it_is_executed() -> Result<()> {
    let (events, _guard) = Events::listen();
    let database = InMemory::new();
    let shop = shop(&database).await?;
    let order = shop.scoop.launch(Order { sleeps: true, retries: 1, ..Order::default() }).await?;
    order.comes_to(|tree| tree.roots().iter().all(|run| run.state == RunState::Sleeping)).await?;
    database.advance(NEVER);
    assert_eq!(order.ends().await?, Outcome::Committed);
    shop.scoop.shutdown().await?;
    assert_eq!(values(&events, "run", "outcome"), ["waiting", "retried", "committed"]);
    assert_eq!(values(&events, "step", "attempt"), ["0", "0", "0", "0", "1"]);
    Ok(())
}
