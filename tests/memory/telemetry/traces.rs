//! Traces of OpenTelemetry across the runs of a hierarchy.

use opentelemetry::trace::{SpanContext, SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use scoop::{ContextKey, Decider};
use tracing::Instrument as _;

use super::*;
use crate::support::traces::Traces;

const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A trace context that no tracer has written.
#[derive(Serialize, Deserialize, ContextKey)]
#[context(key = "traceparent")]
pub(super) struct Forged(pub(super) serde_json::Value);

#[tokio::test(start_paused = true)]
async fn spans_of_a_hierarchy_are_below_the_span_of_its_launch() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let shop = shop(&InMemory::new()).await?;
    let launch = async { shop.scoop.launch(Order { child: true, ..Order::default() }).await };
    let order = launch.instrument(tracing::info_span!("checkout")).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    shop.scoop.shutdown().await?;
    assert_eq!(
        traces.tree(),
        "checkout
  launch telemetry.orders
    run telemetry-order
      telemetry-order.reserve
        run telemetry-parcel !
          telemetry-parcel.pack !
    run telemetry-order !
      telemetry-order.reserve (child_failure) !
      telemetry-order.Rollback of reserve[0,]
      telemetry-order.Rollback of reserve[0,] (finally)
"
    );
    assert_eq!(traces.ids().len(), 1);
    let kinds = ["launch telemetry.orders", "run telemetry-order", "telemetry-order.reserve"];
    let kinds = kinds.map(|name| traces.of(name)[0].span_kind.clone());
    assert_eq!(kinds, [SpanKind::Producer, SpanKind::Consumer, SpanKind::Internal]);
    let run = traces.of("run telemetry-order").pop().expect("it has rolled back");
    let attribute = |name: &str| {
        let found = run.attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.map_or_else(String::new, |attribute| attribute.value.to_string())
    };
    assert_eq!(attribute("hierarchy"), order.id().to_string());
    assert_eq!((attribute("outcome"), attribute("saga")), ("rolled_back".into(), "telemetry-order".into()));
    assert!(attribute("failure").ends_with("no box left"), "{}", attribute("failure"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn another_process_continues_the_trace() -> Result<()> {
    let (launching, guard) = Traces::listen();
    let database = InMemory::new();
    let (before, order) = asleep(&database, "").await?;
    before.scoop.shutdown().await?;
    drop(guard);
    let (continuing, _guard) = Traces::listen();
    let after = shop(&database).await?;
    database.advance(NEVER);
    assert_eq!(order.ends().await?, Outcome::Committed);
    after.scoop.shutdown().await?;
    assert_eq!(continuing.tree(), "run telemetry-order\n  telemetry-order.charge\n");
    assert_eq!(continuing.ids(), launching.ids());
    let launch = &launching.of("launch telemetry.orders")[0];
    let run = &continuing.of("run telemetry-order")[0];
    assert_eq!(run.parent_span_id, launch.span_context.span_id());
    assert!(run.parent_span_is_remote);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn headers_of_a_caller_are_continued_and_malformed_ones_are_left_out() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order::default()).trace_headers(Some(HEADER), Some("shop=1")).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    let launch = &traces.of("launch telemetry.orders")[0];
    let [trace_id, parent_id] = [3..35, 36..52].map(|digits| HEADER[digits].to_owned());
    assert_eq!(launch.span_context.trace_id().to_string(), trace_id);
    assert_eq!(launch.parent_span_id.to_string(), parent_id);
    assert_eq!(launch.span_context.trace_state().header(), "shop=1");
    for malformed in [&HEADER[..54], "", "00-0-0-0"] {
        let order = shop.scoop.launch(Order::default()).trace_headers(Some(malformed), None).await?;
        assert_eq!(order.ends().await?, Outcome::Committed);
    }
    assert_eq!(traces.ids().len(), 4, "each of the others is a trace of its own");
    shop.scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn trace_that_is_not_sampled_has_no_spans() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let shop = shop(&InMemory::new()).await?;
    let header = HEADER.replace("-01", "-00");
    let order = shop
        .scoop
        .launch(Order { child: true, ..Order::default() })
        .trace_headers(Some(&header), None)
        .await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    shop.scoop.shutdown().await?;
    assert_eq!(traces.tree(), "");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn headers_are_handed_on_without_a_tracer() -> Result<()> {
    #[derive(Default)]
    struct Asking;

    #[saga(name = "telemetry-asking")]
    #[subscribes(Visit)]
    impl Asking {
        #[step]
        async fn ask(&self, scope: &mut Scope<'_>, _: &Visit) -> Result<()> {
            let trace = scope.trace_context().map(|trace| trace.traceparent());
            assert_eq!(trace.as_deref(), Some(HEADER));
            Ok(())
        }
    }

    let program = Program::start(&InMemory::new(), |it| it.only::<Asking>()).await?;
    let visit = program.scoop.launch(Visit).trace_headers(Some(HEADER), None).await?;
    assert_eq!(visit.ends().await?, Outcome::Committed);
    program.scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forged_trace_context_fails_no_run() -> Result<()> {
    let database = InMemory::new();
    let shop = shop(&database).await?;
    let forged = ["7", "[]", r#""00-00-00-00""#, r#""{}""#]
        .map(|text| serde_json::from_str(text).expect("it is JSON"));
    let mut orders = vec![];
    for forged in forged {
        // Without a tracer, which would replace it.
        orders
            .push(shop.scoop.launch(Order { sleeps: true, ..Order::default() }).with(Forged(forged)).await?);
    }
    for order in &orders {
        order.comes_to(|tree| tree.roots().iter().all(|run| run.state == RunState::Sleeping)).await?;
    }
    shop.scoop.shutdown().await?;
    let (traces, _guard) = Traces::listen();
    let shop = self::shop(&database).await?;
    database.advance(NEVER);
    for order in &orders {
        assert_eq!(order.ends().await?, Outcome::Committed);
    }
    shop.scoop.shutdown().await?;
    assert_eq!(traces.tree(), "run telemetry-order\n  telemetry-order.charge\n".repeat(4));
    assert_eq!(traces.ids().len(), 4, "each run begins a trace");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn run_without_a_launch_in_a_trace_begins_one_and_continues_it() -> Result<()> {
    let database = InMemory::new();
    // Without a tracer.
    let client = Scoop::builder().in_memory_database(&database).client().await?;
    let (before, first) = asleep(&database, "").await?;
    before.scoop.shutdown().await?;
    database.advance(NEVER);
    let order = client.launch(Order { sleeps: true, ..Order::default() }).await?;
    let (traces, _guard) = Traces::listen();
    let shop = shop(&database).await?;
    assert_eq!(first.ends().await?, Outcome::Committed);
    order.comes_to(|tree| tree.roots().iter().all(|run| run.state == RunState::Sleeping)).await?;
    database.advance(NEVER);
    assert_eq!(order.ends().await?, Outcome::Committed);
    shop.scoop.shutdown().await?;
    let charged = "  telemetry-order.charge\n";
    let expected = format!(
        "run telemetry-order\n{charged}run telemetry-order\n  telemetry-order.reserve\n  telemetry-order.reserve (finally)\n  telemetry-order.rest\n  \
         run telemetry-order\n  {charged}"
    );
    let mut lines: Vec<_> = traces.tree().lines().map(str::to_owned).collect();
    let mut expected: Vec<_> = expected.lines().map(str::to_owned).collect();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
    assert_eq!(traces.ids().len(), 2);
    Ok(())
}

/// Goes on anew until it has been called so many times.
#[derive(Clone, Serialize, Deserialize, Message)]
#[message(topic = "telemetry.rounds")]
struct Round {
    left: u32,
}

#[derive(Default)]
struct Rounds;

#[saga(name = "telemetry-rounds")]
#[subscribes(Round)]
impl Rounds {
    #[step]
    async fn turn(&self, _: &mut Scope<'_>, round: &Round) -> Result<ContinueAsNew<RoundsStep, Round>> {
        Ok(if round.left == 0 {
            Next::Continue.into()
        } else {
            Next::continue_as_new(Round { left: round.left - 1 })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn each_execution_of_an_endless_run_is_a_trace_with_a_link_to_the_one_before() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let program = Program::start(&InMemory::new(), |it| it.only::<Rounds>()).await?;
    let rounds = program.scoop.launch(Round { left: 2 }).await?;
    assert_eq!(rounds.ends().await?, Outcome::Committed);
    program.scoop.shutdown().await?;
    let turn = "run telemetry-rounds\n  telemetry-rounds.turn\n";
    let first = turn.replace("\n  ", "\n    ").replace("run", "launch telemetry.rounds\n  run");
    assert_eq!(traces.tree(), format!("{first}{turn}{turn}"));
    let runs = traces.of("run telemetry-rounds");
    assert_eq!(traces.ids().len(), 3);
    for (before, after) in runs.iter().zip(&runs[1..]) {
        let links: Vec<_> = after.links.iter().map(|link| link.span_context.span_id()).collect();
        assert_eq!(links, [before.span_context.span_id()]);
    }
    Ok(())
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Till;

#[entity(name = "telemetry-till", key = u32)]
impl Till {
    fn paid(&mut self, _: &Paid) {}
}

#[derive(Clone, Serialize, Deserialize, Message)]
#[message(topic = "telemetry.paid")]
struct Paid;

#[derive(Serialize, Deserialize)]
struct Pay {
    till: u32,
}

#[command(entity = Till)]
impl Pay {
    fn key(&self) -> u32 {
        self.till
    }

    fn decide(&self, _: &Till) -> Decision<Paid, ()> {
        Decision::Accepted(Paid)
    }
}

#[derive(Default)]
struct Receipts;

#[saga(name = "telemetry-receipts")]
#[subscribes(Paid)]
impl Receipts {
    #[step]
    async fn print(&self, _: &mut Scope<'_>, _: &Paid) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_of_the_event_of_a_command_are_below_its_decision() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let program = Program::start(&InMemory::new(), |it| it.only::<Decider<Pay>>().only::<Receipts>()).await?;
    let paid = program.scoop.send(Pay { till: 7 }).await?;
    assert_eq!(paid.ends().await?, Outcome::Committed);
    program.scoop.shutdown().await?;
    let tree = traces.tree();
    let lines: Vec<_> = tree.lines().map(|line| (line.len() - line.trim_start().len()) / 2).collect();
    assert_eq!(lines, [0, 1, 2, 3, 4], "{tree}");
    assert!(tree.ends_with("telemetry-receipts.print\n"), "{tree}");
    assert!(traces.spans().iter().all(|span| span.status == Status::Unset));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn messages_launched_together_are_below_one_span() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let shop = shop(&InMemory::new()).await?;
    let orders = shop.scoop.launch_all([Order::default(), Order::default()]).await?;
    for order in &orders {
        assert_eq!(order.ends().await?, Outcome::Committed);
    }
    shop.scoop.shutdown().await?;
    let launch = &traces.of("launch telemetry.orders")[..];
    let [launch] = launch else { panic!("{}", traces.tree()) };
    let runs = traces.of("run telemetry-order");
    let parents: Vec<_> = runs.iter().map(|run| run.parent_span_id).collect();
    assert_eq!(parents, [launch.span_context.span_id(); 2]);
    Ok(())
}

#[derive(Clone, Serialize, Deserialize, Message)]
#[message(topic = "telemetry.shipments")]
struct Ship {
    number: u32,
}

#[derive(Serialize, Deserialize, Signal)]
#[signal(name = "telemetry.paid-in")]
struct PaidIn;

#[derive(Serialize, Deserialize, Signal)]
#[signal(name = "telemetry.sent-back")]
struct SentBack;

#[derive(Default)]
struct Shipments;

#[saga(name = "telemetry-shipments")]
#[subscribes(Ship)]
impl Shipments {
    #[step(awaits(PaidIn, by = number))]
    async fn ship(&self, _: &mut Scope<'_>, _: &Ship, _: &PaidIn) -> Result<()> {
        Ok(())
    }

    #[step(awaits(SentBack, by = number, within = "1 s"))]
    async fn refund(&self, _: &mut Scope<'_>, _: &Ship, back: Option<&SentBack>) -> Result<()> {
        assert!(back.is_none());
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, ship: &Ship) -> Result<String> {
        Ok(ship.number.to_string())
    }
}

/// Pays for a shipment in a step.
#[derive(Clone, Serialize, Deserialize, Message)]
#[message(topic = "telemetry.cash")]
struct Cash {
    number: u32,
}

#[derive(Default)]
struct Tills;

#[saga(name = "telemetry-tills")]
#[subscribes(Cash)]
impl Tills {
    #[step]
    async fn take(&self, scope: &mut Scope<'_>, cash: &Cash) -> Result<()> {
        scope.signal(PaidIn, cash.number.to_string())
    }
}

impl Ship {
    /// Launches it, and waits for its wait.
    async fn awaits(self, scoop: &Scoop) -> Result<Handle> {
        let shipment = scoop.launch(self).await?;
        let awaits = |tree: &Tree| tree.roots().iter().all(|run| run.state == RunState::AwaitingSignal);
        shipment.comes_to(awaits).await?;
        Ok(shipment)
    }
}

/// The links of the spans of this name, in the order in which these began: the ids of trace and span.
fn links(traces: &Traces, name: &str) -> Vec<Vec<[String; 2]>> {
    let ids = |context: &SpanContext| [context.trace_id().to_string(), context.span_id().to_string()];
    let of = |span: SpanData| span.links.iter().map(|link| ids(&link.span_context)).collect();
    traces.of(name).into_iter().map(of).collect()
}

/// The ids of the only span of this name.
fn ids(traces: &Traces, name: &str) -> [String; 2] {
    let [span] = &traces.of(name)[..] else { panic!("not one {name}: {}", traces.tree()) };
    [span.span_context.trace_id().to_string(), span.span_context.span_id().to_string()]
}

#[tokio::test(start_paused = true)]
async fn step_that_goes_on_with_a_signal_is_linked_to_its_sender() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let database = InMemory::new();
    let program = Program::start(&database, |it| it.only::<Shipments>()).await?;
    let shipment = Ship { number: 1 }.awaits(&program.scoop).await?;
    assert_eq!(program.scoop.signal(PaidIn, "1").await?, 1);
    // The second wait of the run has no signal.
    shipment.comes_to(|tree| tree.roots().iter().all(|run| run.state == RunState::AwaitingSignal)).await?;
    database.advance(SOON);
    assert_eq!(shipment.ends().await?, Outcome::Committed);
    program.scoop.shutdown().await?;
    let sender = ids(&traces, "signal telemetry.paid-in");
    // The first span of each step begins the wait.
    assert_eq!(links(&traces, "telemetry-shipments.ship"), [vec![], vec![sender.clone()]]);
    assert_eq!(links(&traces, "telemetry-shipments.refund"), [const { Vec::<[String; 2]>::new() }; 2]);
    assert_ne!(ids(&traces, "launch telemetry.shipments")[0], sender[0], "each is a trace of its own");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn kept_signal_of_a_step_keeps_the_span_of_that_for_another_process() -> Result<()> {
    let (sending, guard) = Traces::listen();
    let database = InMemory::new();
    let tills = Program::start(&database, |it| it.only::<Tills>()).await?;
    assert_eq!(tills.scoop.launch(Cash { number: 2 }).await?.ends().await?, Outcome::Committed);
    tills.scoop.shutdown().await?;
    drop(guard);
    let (continuing, _guard) = Traces::listen();
    let program = Program::start(&database, |it| it.only::<Shipments>()).await?;
    let shipment = program.scoop.launch(Ship { number: 2 }).await?;
    shipment.comes_to(|tree| tree.to_string().contains("signal for refund")).await?;
    program.scoop.shutdown().await?;
    let sender = ids(&sending, "telemetry-tills.take");
    assert_eq!(links(&continuing, "telemetry-shipments.ship"), [vec![], vec![sender]]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn signal_of_a_step_without_a_tracer_has_the_trace_of_its_run() -> Result<()> {
    let database = InMemory::new();
    let shipments = Program::start(&database, |it| it.only::<Shipments>()).await?;
    Ship { number: 3 }.awaits(&shipments.scoop).await?;
    shipments.scoop.shutdown().await?;
    let tills = Program::start(&database, |it| it.only::<Tills>()).await?;
    let cash = tills.scoop.launch(Cash { number: 3 }).trace_headers(Some(HEADER), None).await?;
    assert_eq!(cash.ends().await?, Outcome::Committed);
    tills.scoop.shutdown().await?;
    let (traces, _guard) = Traces::listen();
    let program = Program::start(&database, |it| it.only::<Shipments>()).await?;
    eventually("the step goes on", async || !traces.of("telemetry-shipments.ship").is_empty()).await;
    program.scoop.shutdown().await?;
    let [trace_id, span_id] = [3..35, 36..52].map(|digits| HEADER[digits].to_owned());
    assert_eq!(links(&traces, "telemetry-shipments.ship"), [vec![[trace_id, span_id]]]);
    Ok(())
}

#[derive(Clone, Serialize, Deserialize, Message)]
#[message(topic = "telemetry.captured")]
struct Captured {
    order: u32,
}

#[derive(Clone, Serialize, Deserialize, Message)]
#[message(topic = "telemetry.picked")]
struct Picked {
    order: u32,
}

#[derive(Default)]
struct Joining;

#[saga(name = "telemetry-joining")]
#[subscribes(join(Captured, Picked, by = order))]
impl Joining {
    #[step]
    async fn ship(&self, _: &mut Scope<'_>, _: &JoiningMessage) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn thank(&self, scope: &mut Scope<'_>, _: &JoiningMessage) -> Result<()> {
        scope.sleep(NEVER).await
    }
}

#[tokio::test(start_paused = true)]
async fn first_run_of_a_joined_set_is_linked_to_the_traces_of_its_messages() -> Result<()> {
    let (traces, _guard) = Traces::listen();
    let database = InMemory::new();
    let program = Program::start(&database, |it| it.only::<Joining>()).await?;
    let captured = program.scoop.launch(Captured { order: 7 }).await?;
    assert_eq!(captured.ends().await?, Outcome::Committed);
    let picked = program.scoop.launch(Picked { order: 7 }).await?;
    assert_eq!(picked.ends().await?, Outcome::Committed);
    eventually("the set sleeps", async || traces.of("telemetry-joining.thank").len() == 1).await;
    database.advance(NEVER);
    eventually("the set goes on", async || traces.of("run telemetry-joining").len() == 2).await;
    program.scoop.shutdown().await?;
    let of_messages = ["telemetry.captured", "telemetry.picked"];
    let of_messages = of_messages.map(|topic| ids(&traces, &format!("launch {topic}"))[0].clone());
    let links = links(&traces, "run telemetry-joining");
    let mut linked: Vec<_> = links[0].iter().map(|[trace, _]| trace.clone()).collect();
    linked.sort();
    let mut expected = of_messages.to_vec();
    expected.sort();
    assert_eq!(linked, expected);
    assert!(links[1].is_empty(), "{links:?}");
    let own = traces.of("run telemetry-joining")[0].span_context.trace_id().to_string();
    assert!(!linked.contains(&own), "the set is a trace of its own");
    Ok(())
}
