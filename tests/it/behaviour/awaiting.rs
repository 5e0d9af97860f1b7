//! Signals: early and late ones, several receivers, duplicates, time limits, and rollbacks.

use std::time::Duration;

use scoop::Handle;

use super::*;
use crate::support::{Database, Notes, calls_of, compensated, invoked};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Order {
    number: i64,
    fails: bool,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "payments.confirmed", retention = "7 days")]
struct Paid {
    amount: i64,
}

handler! {
    Shipping { notes: Notes }: "shipping" on Order;
    step "reserve" reserve [rollback = release] => done();

    #[step(name = "ship", awaits(Paid, by = number), rollback = unship)]
    async fn ship(&self, scope: &mut Scope<'_>, _: &Order, paid: &Paid) -> Result<()> {
        invoked(scope);
        self.notes.add(format!("paid {}", paid.amount));
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
        Ok(order.number.to_string())
    }

    #[step(name = "thank")]
    async fn thank(&self, scope: &mut Scope<'_>, order: &Order, paid: &Paid) -> Result<()> {
        invoked(scope);
        self.notes.add(format!("thanks for {}", paid.amount));
        if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn unship(&self, scope: &mut Scope<'_>, _: &Order, paid: &Paid, _: &Failure) -> Result<()> {
        compensated(scope);
        self.notes.add(format!("undoing what {} paid for", paid.amount));
        Ok(())
    }

    rollback release => done();
}

fn order(number: i64) -> Order {
    Order { number, fails: false }
}

async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    let scoop = db.scoop().only::<Shipping>().provide(Shipping { notes: notes.clone() });
    Ok(scoop.poll_interval(NEVER).start().await?)
}

fn awaits(tree: &Tree) -> bool {
    tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_awaits_its_signal_and_gets_it_as_a_value() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let (seventh, eighth) = (scoop.launch(order(7)).await?, scoop.launch(order(8)).await?);
    let tree = seventh.comes_to(awaits).await?;
    let text = tree.to_string();
    assert!(
        text.starts_with("shipping (on root-topic): awaiting signal payments.confirmed for 7 since 2"),
        "{text}"
    );
    assert!(text.contains("began to await a signal for ship: payments.confirmed with key 7"), "{text}");
    assert!(!text.contains("(waiting for signal)"), "{text}");
    eighth.comes_to(awaits).await?;
    assert_eq!(scoop.signal(Paid { amount: 990 }, "7").await?, 1);
    assert_eq!(seventh.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["paid 990", "thanks for 990"]);
    calls_of(&seventh).expect(
        "invoke shipping/reserve
        invoke shipping/ship
        invoke shipping/thank",
    );
    assert!(awaits(&eighth.tree().await?), "its key is another one");
    db.history().await.about(&["M0"]).expect(
        r#"M0 EMITTED · ·
        M0 SEEN shipping ·
        M0 SUSPENDED shipping reserve next=1
        M0 SUSPENDED shipping "ship (waiting for signal)" next=2 wait
        M0 SUSPENDED shipping ship next=3
        M0 SUSPENDED shipping thank
        M0 COMMITTED shipping thank"#,
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn early_signals_are_kept_in_their_order() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    for amount in [1, 2] {
        assert_eq!(scoop.signal(Paid { amount }, "7").await?, 0);
    }
    for amount in [1, 2] {
        assert_eq!(scoop.launch(order(7)).await?.ends().await?, Outcome::Committed);
        assert_eq!(notes.all().last(), Some(&format!("thanks for {amount}")));
    }
    let third = scoop.launch(order(7)).await?;
    third.comes_to(awaits).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_runs_that_await_a_signal_get_it_and_a_repetition_none() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let orders = [scoop.launch(order(7)).await?, scoop.launch(order(7)).await?];
    for order in &orders {
        order.comes_to(awaits).await?;
    }
    let id = orders[0].id().uuid();
    assert_eq!(scoop.signal(Paid { amount: 5 }, "7").id(id).await?, 2);
    for order in &orders {
        assert_eq!(order.ends().await?, Outcome::Committed);
    }
    let third = scoop.launch(order(7)).await?;
    third.comes_to(awaits).await?;
    assert_eq!(scoop.signal(Paid { amount: 6 }, "7").id(id).await?, 2, "it is the same signal");
    assert!(awaits(&third.tree().await?));
    let fourth = scoop.launch(order(8)).await?;
    fourth.comes_to(awaits).await?;
    assert_eq!(scoop.signal(Paid { amount: 7 }, "8").id(id).await?, 1, "it is a signal with another key");
    assert_eq!(fourth.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn compensation_gets_the_signal_and_a_waiting_run_can_be_cancelled() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let failing = scoop.launch(Order { number: 7, fails: true }).await?;
    failing.comes_to(awaits).await?;
    scoop.signal(Paid { amount: 5 }, "7").await?;
    assert!(matches!(failing.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(notes.all().last().map(String::as_str), Some("undoing what 5 paid for"));

    let cancelled = scoop.launch(order(8)).await?;
    cancelled.comes_to(awaits).await?;
    let late = scoop.launch(order(9)).deadline(Duration::from_millis(100)).await?;
    scoop.cancel(cancelled.id(), "enough").await?;
    assert!(matches!(cancelled.ends().await?, Outcome::RolledBack(_)));
    calls_of(&cancelled).expect(
        "invoke shipping/reserve
        rollback shipping/reserve",
    );
    assert!(matches!(late.ends().await?, Outcome::RolledBack(_)));
    let has_awaited = async |handle: &Handle| -> Result<bool> {
        Ok(handle.tree().await?.to_string().contains("began to await a signal for ship"))
    };
    assert!(has_awaited(&cancelled).await?);
    // Its deadline may pass before it begins, or within the step, whose result is refused then.
    match (has_awaited(&late).await?, calls_of(&late)) {
        (false, calls) if calls.count() == 0 => {}
        (false, calls) => calls.expect("invoke shipping/reserve"),
        (true, calls) => calls.expect(
            "invoke shipping/reserve
            rollback shipping/reserve",
        ),
    }
    assert_eq!(scoop.signal(Paid { amount: 5 }, "8").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_have_a_limited_length() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    for (key, why) in [("", "has 0 bytes"), (&*"x".repeat(256), "has 256 bytes"), ("a\0b", "NUL")] {
        let refused = scoop.signal(Paid { amount: 1 }, key).await.unwrap_err().to_string();
        assert!(refused.contains("payments.confirmed") && refused.contains(why), "{refused}");
    }
    assert_eq!(scoop.signal(Paid { amount: 1 }, "ü".repeat(127)).await?, 0);
    Ok(())
}

/// Signals between sagas.
mod of_a_step {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "till")]
    struct Cash {
        number: i64,
        fails: bool,
    }

    handler! {
        Till: "till" on Cash;
        #[step(name = "take")]
        async fn take(&self, scope: &mut Scope<'_>, cash: &Cash) -> Result<()> {
            scope.signal(Paid { amount: 4 }, cash.number.to_string())?;
            if cash.fails { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    /// A signal of a step exists if the step has succeeded.
    #[tokio::test(flavor = "multi_thread")]
    async fn signal_of_a_step_comes_with_its_success() -> Result<()> {
        let (db, notes) = (Database::new().await, Notes::default());
        let scoop = db.scoop().only::<Shipping>().provide(Shipping { notes: notes.clone() });
        let scoop = scoop.only::<Till>().poll_interval(NEVER).start().await?;
        let order = scoop.launch(order(7)).await?;
        order.comes_to(awaits).await?;
        let failed = scoop.launch(Cash { number: 7, fails: true }).await?;
        assert!(matches!(failed.ends().await?, Outcome::RolledBack(_)));
        assert!(awaits(&order.tree().await?));
        let taken = scoop.launch(Cash { number: 7, fails: false }).await?;
        assert_eq!(taken.ends().await?, Outcome::Committed);
        assert_eq!(order.ends().await?, Outcome::Committed);
        assert_eq!(notes.all(), ["paid 4", "thanks for 4"]);
        Ok(())
    }
}

/// Signals that the type of the step cannot read.
mod unreadable {
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct PaidInWords {
        amount: String,
    }

    // Not derived: a program with two derived signals of one name does not start.
    impl Signal for PaidInWords {
        const NAME: &'static str = Paid::NAME;
        const RETENTION: Duration = Paid::RETENTION;
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "till-in-words")]
    struct Cash {
        number: i64,
    }

    handler! {
        Till: "till-in-words" on Cash;
        #[step(name = "take")]
        async fn take(&self, scope: &mut Scope<'_>, cash: &Cash) -> Result<()> {
            scope.signal(PaidInWords { amount: "five".into() }, cash.number.to_string())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn signal_that_no_saga_can_read_is_refused_with_its_wrong_fields() -> Result<()> {
        let (db, notes) = (Database::new().await, Notes::default());
        let scoop = start(&db, &notes).await?;
        let order = scoop.launch(order(7)).await?;
        let run = order.comes_to(awaits).await?.roots()[0].id();
        let wrong = || json!({ "amount": "five" });
        let mut refused = vec![
            scoop.signal(PaidInWords { amount: "five".into() }, "7").await.unwrap_err().to_string(),
            scoop.operate().runs().signal("payments.confirmed", wrong(), "7").await.unwrap_err().to_string(),
        ];
        if !Database::IN_MEMORY {
            let by_phone = || scoop.operate().runs().signal_run(run, wrong(), "by phone");
            refused.push(by_phone().source("Ada").await.unwrap_err().to_string());
            refused.push(by_phone().dry_run().await.unwrap_err().to_string());
        }
        for error in refused {
            let told = "no saga that awaits it can read it: `amount` is a string, not an i64";
            assert!(error.contains("payments.confirmed") && error.ends_with(told), "{error}");
        }
        let missing =
            scoop.operate().runs().signal("payments.confirmed", json!({ "amnt": 5 }), "7").await.unwrap_err();
        assert!(missing.to_string().ends_with("`amount` is missing"), "{missing}");
        assert_eq!(scoop.operate().failures().interventions(order.id()).await?, []);
        let more = json!({ "amount": 5, "by": "Ada" });
        assert_eq!(scoop.operate().runs().signal("payments.confirmed", more, "7").await?, 1);
        assert_eq!(order.ends().await?, Outcome::Committed);
        assert_eq!(notes.all(), ["paid 5", "thanks for 5"]);
        Ok(())
    }

    /// Of a step, which does not wait for the database, no payload is compared with the types of the receivers.
    #[tokio::test(flavor = "multi_thread")]
    async fn signal_that_the_step_cannot_read_leaves_the_run_waiting() -> Result<()> {
        let (db, notes) = (Database::new().await, Notes::default());
        let scoop = db.scoop().only::<Shipping>().provide(Shipping { notes: notes.clone() });
        let scoop = scoop.only::<Till>().poll_interval(NEVER).start().await?;
        let order = scoop.launch(order(7)).await?;
        order.comes_to(awaits).await?;
        assert_eq!(scoop.launch(Cash { number: 7 }).await?.ends().await?, Outcome::Committed);
        let tree = order.comes_to(|tree| tree.to_string().contains("a signal was refused")).await?;
        assert!(awaits(&tree), "{tree}");
        let mut texts = vec![tree.to_string()];
        if !Database::IN_MEMORY {
            texts.push(scoop.operate().runs().explain(order.id()).await?.to_string());
        }
        for text in texts {
            let told = [
                "a signal was refused: `payments.confirmed` is not a `",
                "invalid type: string",
                "expected i64",
            ];
            assert!(told.iter().all(|part| text.contains(part)), "{text}");
        }
        assert_eq!(scoop.signal(Paid { amount: 5 }, "7").await?, 1);
        assert_eq!(order.ends().await?, Outcome::Committed);
        calls_of(&order).expect(
            "invoke shipping/reserve
            invoke shipping/ship
            invoke shipping/thank",
        );
        assert_eq!(notes.all(), ["paid 5", "thanks for 5"]);
        Ok(())
    }
}

/// Keys that a saga computes.
mod keys {
    use super::*;

    handler! {
        Endless: "endless" on Order;
        #[step(name = "poll", awaits(Paid, by = number))]
        async fn poll(&self, _: &mut Scope<'_>, _: &Order, _: &Paid) -> Result<()> {
            Ok(())
        }

        async fn number(&self, _: &mut Scope<'_>, _: &Order) -> Result<String> {
            Ok("7".repeat(256))
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wait_for_a_key_that_is_too_long_fails_the_run() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<Endless>().start().await?;
        let Outcome::RolledBack(failure) = scoop.launch(order(7)).await?.ends().await? else {
            panic!("it has waited");
        };
        for told in ["payments.confirmed", "its key has 256 bytes; 1 to 255 are possible"] {
            assert!(failure.message.contains(told), "{}", failure.report());
        }
        Ok(())
    }
}

mod limits {
    use super::*;

    handler! {
        Polling { notes: Notes }: "polling" on Order;
        #[step(name = "poll", awaits(Paid, by = number, within = "80ms"))]
        async fn poll(&self, _: &mut Scope<'_>, _: &Order, paid: Option<&Paid>) -> Result<Next<PollingStep>> {
            let had_it = self.notes.all().iter().any(|note| note == "Some(3)");
            self.notes.add(format!("{:?}", paid.map(|paid| paid.amount)));
            Ok(if had_it { Next::Continue } else { Next::GoTo(PollingStep::Poll) })
        }

        async fn number(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
            Ok(order.number.to_string())
        }

        #[step(name = "end")]
        async fn end(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
            Ok(())
        }
    }

    /// The signal of an earlier iteration does not count for the next one.
    #[tokio::test(flavor = "multi_thread")]
    async fn signal_that_does_not_come_in_time_is_none() -> Result<()> {
        let (db, notes) = (Database::new().await, Notes::default());
        let scoop = db.scoop().only::<Polling>().provide(Polling { notes: notes.clone() });
        let scoop = scoop.poll_interval(NEVER).start().await?;
        scoop.signal(Paid { amount: 3 }, "7").await?;
        let order = scoop.launch(order(7)).await?;
        assert_eq!(order.ends().await?, Outcome::Committed);
        let notes = notes.all();
        let (last, before) = notes.split_last().expect("it has polled");
        assert_eq!(last, "None", "{notes:?}");
        // On a slow machine the limit may pass before the delivery.
        assert_eq!(before.iter().filter(|note| *note == "Some(3)").count(), 1, "{notes:?}");
        Ok(())
    }
}
