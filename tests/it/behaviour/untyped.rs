//! Launches and signals without Rust types, and lists of workers.

use std::time::Duration;

use super::*;
use crate::support::{Database, Notes};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "untyped.order")]
struct Order {
    number: i64,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "untyped.paid", retention = "1 day")]
struct Paid {
    amount: i64,
}

handler! {
    Billing { notes: Notes }: "untyped-billing" on Order;

    #[step(name = "collect", awaits(Paid, by = number))]
    async fn collect(&self, _: &mut Scope<'_>, order: &Order, paid: &Paid) -> Result<()> {
        self.notes.add(format!("{} for {}", paid.amount, order.number));
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
        Ok(order.number.to_string())
    }
}

/// Asks for a message on a topic that the saga does not know.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "untyped.pass-on")]
struct PassOn {
    topic: String,
    payload: serde_json::Value,
    required: bool,
}

handler! {
    Relay { notes: Notes }: "untyped-relay" on PassOn;

    #[step(name = "pass on")]
    async fn pass_on(&self, scope: &mut Scope<'_>, asked: &PassOn) -> Result<()> {
        let launch = scope.launch_untyped(&*asked.topic, asked.payload.clone());
        if asked.required { launch.required().await? } else { launch.await? };
        Ok(())
    }

    #[step(name = "then")]
    async fn then(&self, _: &mut Scope<'_>, _: &PassOn) -> Result<()> {
        self.notes.add("passed on");
        Ok(())
    }
}

pub(super) async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    let scoop = db.scoop().only::<Billing>().poll_interval(NEVER);
    Ok(scoop.provide(Billing { notes: notes.clone() }).start().await?)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn message_and_signal_of_json_reach_the_saga_of_their_types() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let launch = || scoop.launch_untyped("untyped.order", json(r#"{"number":7}"#)).unique("order 7");
    let order = launch().required().await?;
    assert_eq!(launch().await?.id(), order.id(), "the key is that of the launch before");
    assert_eq!(scoop.launch(Order { number: 7 }).unique("order 7").await?.id(), order.id());
    scoop.operate().runs().signal("untyped.paid", json(r#"{"amount":990}"#), "7").await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["990 for 7"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_waits_for_the_handlers_of_a_message_of_json() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let builder = db.scoop().only::<Billing>().provide(Billing { notes: notes.clone() });
    let scoop = builder.only::<Relay>().provide(Relay { notes: notes.clone() }).start().await?;
    let pass_on = |topic: &str, payload: &str, required| {
        scoop.launch(PassOn { topic: topic.into(), payload: json(payload), required })
    };
    let relayed = pass_on("untyped.order", r#"{"number":7}"#, true).await?;
    scoop.operate().runs().signal("untyped.paid", json(r#"{"amount":990}"#), "7").await?;
    assert_eq!(relayed.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["990 for 7", "passed on"]);

    let fails = async |topic: &str, required| -> Result<Failure> {
        match pass_on(topic, "1", required).await?.ends().await? {
            Outcome::RolledBack(failure) => Ok(failure),
            other => panic!("{topic:?}: {other:?}"),
        }
    };
    let refused = fails(&"t".repeat(64), false).await?;
    assert!(refused.to_string().contains("`Scope::launch_untyped` cannot be published"), "{refused}");
    let unhandled = fails("untyped.orders", true).await?;
    assert!(unhandled.to_string().contains("`Scope::launch_untyped` requires one"), "{unhandled}");
    let unread = fails("untyped.order", false).await?;
    assert!(unread.to_string().contains("untyped-billing"), "{unread}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_gets_the_signal_that_it_awaits_and_its_sender_is_recorded() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let order = scoop.launch(Order { number: 7 }).await?;
    let tree = order.comes_to(|tree| tree.roots()[0].state == RunState::AwaitingSignal).await?;
    let run = tree.roots()[0].id();
    let send = || {
        scoop.operate().runs().signal_run(run, json(r#"{"amount":990}"#), "the bank has called").source("Ada")
    };
    let refused = scoop.operate().runs().signal_run(run, json(r#""a\u0000b""#), "").await.unwrap_err();
    assert!(refused.is_invalid() && refused.to_string().contains("a NUL character"), "{refused:?}");
    assert!(scoop.operate().failures().interventions(order.id()).await?.is_empty(), "nothing was sent");
    assert_eq!(send().await?, scoop::requests::SignalAnswer::Accepted);
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(send().await?, scoop::requests::SignalAnswer::NotAwaiting);
    assert_eq!(notes.all(), ["990 for 7"]);
    let sent = scoop.operate().failures().interventions(order.id()).await?;
    let [sent] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&*sent.kind, &*sent.source, sent.run, &sent.step), ("signal", "Ada", run, &None));
    assert_eq!(sent.to_string(), "signal by Ada: the bank has called");
    let wrong = scoop.operate().runs().signal_run(order.id().uuid(), json("1"), "").await.unwrap_err();
    assert!(wrong.wrong_id().is_some(), "{wrong:?}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_topic_name_or_key_is_refused_by_name() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    for topic in ["", &"t".repeat(64), "a\0b"] {
        let refused = scoop.launch_untyped(topic, json("1")).await.err();
        let Some(error) = &refused else { panic!("{topic:?} was launched") };
        let named = format!(" cannot be published on topic {topic:?}: ");
        assert!(error.is_invalid() && error.to_string().contains(&named), "{topic:?}: {error:?}");
    }
    let refused = scoop.launch_untyped("untyped.orders", json("1")).required().await.err();
    let Some(error) = &refused else { panic!("it was launched") };
    assert!(error.is_no_handler(), "{error:?}");
    assert!(error.to_string().contains("`Scoop::launch_untyped` requires one"), "{error}");
    let refused = scoop.operate().runs().signal("untyped.payed", json("1"), "7").required().await.err();
    let Some(error) = &refused else { panic!("it was sent") };
    let expected = "no saga has ever awaited a signal `untyped.payed` (did you mean `untyped.paid`?); ";
    assert!(error.to_string().starts_with(expected), "{error}");
    let kept = scoop.operate().runs().signal("untyped.paid", json(r#"{"amount":1}"#), "8").required().await?;
    assert_eq!(kept, 0, "no run awaits it yet, but a saga does");
    for (name, key) in [("", "7"), (&*"n".repeat(181), "7"), ("a\0b", "7"), ("untyped.paid", "")] {
        let refused = scoop.operate().runs().signal(name, json("1"), key).await.err();
        let Some(error) = &refused else { panic!("{name:?} was sent") };
        let named = format!("the signal `{}` cannot be sent: ", name.replace('\0', r"\u{0}"));
        assert!(error.is_invalid() && error.to_string().starts_with(&named), "{name:?}: {error:?}");
    }
    scoop.shutdown().await?;
    Ok(())
}
