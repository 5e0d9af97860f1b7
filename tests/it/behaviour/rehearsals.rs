//! Rehearsals: everything that can go wrong goes wrong once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use scoop::testing::{Fault, FaultPoint, crash_at_each_commit, fail_each_step, run_each_step_twice};

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
struct MoneyMoves {
    cents: i64,
}

#[derive(Message, Serialize, Deserialize)]
struct MoneyArrives {
    cents: i64,
}

/// How often each notice was sent, by its idempotency key.
type Sent = Arc<Mutex<BTreeMap<String, u32>>>;

#[derive(Default)]
struct Payer {
    sent: Sent,
    /// Whether its compensation does nothing.
    careless: bool,
}

#[saga]
#[subscribes(MoneyMoves)]
impl Payer {
    #[step(rollback = put_back)]
    async fn take(&self, scope: &mut Scope<'_>, it: &MoneyMoves) -> Result<()> {
        book(scope, "payer", -it.cents).await
    }

    #[step]
    async fn pass_on(&self, scope: &mut Scope<'_>, it: &MoneyMoves) -> Result<()> {
        scope.launch(MoneyArrives { cents: it.cents }).await?;
        Ok(())
    }

    #[step]
    async fn tell(&self, scope: &mut Scope<'_>, _: &MoneyMoves) -> Result<()> {
        *self.sent.lock().unwrap().entry(scope.idempotency_key().to_string()).or_default() += 1;
        Ok(())
    }

    async fn put_back(&self, scope: &mut Scope<'_>, it: &MoneyMoves, _: &Failure) -> Result<()> {
        match self.careless {
            true => Ok(()),
            false => book(scope, "payer", it.cents).await,
        }
    }
}

#[derive(Default)]
struct Payee;

#[saga]
#[subscribes(MoneyArrives)]
impl Payee {
    #[step(rollback = give_back)]
    async fn receive(&self, scope: &mut Scope<'_>, it: &MoneyArrives) -> Result<()> {
        book(scope, "payee", it.cents).await
    }

    async fn give_back(&self, scope: &mut Scope<'_>, it: &MoneyArrives, _: &Failure) -> Result<()> {
        book(scope, "payee", -it.cents).await
    }
}

async fn book(scope: &mut Scope<'_>, account: &str, cents: i64) -> Result<()> {
    let booking = sqlx::query("INSERT INTO booking VALUES ($1, $2)").bind(account).bind(cents);
    booking.execute(scope.tx().await?).await?;
    Ok(())
}

/// Moves 30 cents. How it ended, and the bookings.
async fn moved(builder: scoop::Builder, payer: Payer) -> Result<(Outcome, Vec<String>)> {
    let db = Database::new().await;
    db.execute("CREATE TABLE booking (account text, cents bigint)").await;
    let scoop =
        builder.postgres(db.pool().clone()).provide(payer).only::<Payer>().only::<Payee>().start().await?;
    let outcome = scoop.launch(MoneyMoves { cents: 30 }).await?.ends().await?;
    scoop.shutdown().await?;
    let bookings = "SELECT account || ' ' || sum(cents) || ' in ' || count(*) FROM booking
                    GROUP BY account ORDER BY account";
    Ok((outcome, db.texts(bookings).await))
}

fn names(places: &[FaultPoint]) -> Vec<String> {
    places.iter().map(|place| format!("{} {}", place.saga, place.what)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_fails_once_and_everything_is_undone() -> Result<()> {
    let places = fail_each_step(async |builder, failing| {
        let (outcome, bookings) = moved(builder, Payer::default()).await?;
        let Some(place) = failing else {
            assert_eq!(
                (outcome, &bookings[..]),
                (Outcome::Committed, &["payee 30 in 1", "payer -30 in 1"].map(String::from)[..])
            );
            return Ok(());
        };
        let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
        let deepest = failure.causes.first().unwrap_or(&failure);
        assert_eq!((&*deepest.kind, place.fault), ("Rehearsed", Fault::Fails), "{}", failure.report());
        assert!(deepest.message.contains(&place.what), "{}", failure.report());
        assert!(bookings.iter().all(|line| line.contains(" 0 in 2")), "{bookings:?}");
        Ok(())
    })
    .await?;
    assert_eq!(names(&places), ["payer take", "payer pass_on", "payee receive", "payer tell"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compensation_that_does_nothing_is_found() {
    let found = fail_each_step(async |builder, failing| {
        let careless = Payer { careless: true, ..Payer::default() };
        let (_, bookings) = moved(builder, careless).await?;
        match failing {
            Some(_) if bookings.iter().any(|line| !line.contains(" 0 in")) => {
                Err(Error::msg(format!("{bookings:?}")))
            }
            _ => Ok(()),
        }
    });
    let found = found.await.unwrap_err().to_string();
    assert_eq!(found, "step `pass_on` of saga `payer` fails (run 0, number 0): [\"payer -30 in 1\"]");
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_runs_twice_writes_once() -> Result<()> {
    let sent = Sent::default();
    let twice = run_each_step_twice(async |builder| {
        let (outcome, bookings) = moved(builder, Payer { sent: sent.clone(), careless: false }).await?;
        assert_eq!(outcome, Outcome::Committed);
        assert_eq!(bookings, ["payee 30 in 1", "payer -30 in 1"]);
        Ok(())
    });
    assert_eq!(twice.await?, 4);
    let sent: Vec<_> = sent.lock().unwrap().values().copied().collect();
    assert_eq!(sent, [2], "one key, two attempts");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_commit_changes_nothing() -> Result<()> {
    let places = crash_at_each_commit(async |builder, _| {
        let (outcome, bookings) = moved(builder, Payer::default()).await?;
        assert_eq!(outcome, Outcome::Committed);
        assert_eq!(bookings, ["payee 30 in 1", "payer -30 in 1"]);
        Ok(())
    })
    .await?;
    let commits =
        ["payer SUSPENDED take", "payer EMITTED pass_on", "payee SUSPENDED receive", "payer SUSPENDED tell"];
    let expected: Vec<_> = commits.into_iter().flat_map(|commit| [commit, commit]).collect();
    assert_eq!(names(&places), expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rehearsal_with_another_course_is_an_error() {
    let strays = fail_each_step(async |builder, failing| match failing {
        None => moved(builder, Payer::default()).await.map(drop),
        Some(_) => Ok(()),
    });
    let error = strays.await.unwrap_err().to_string();
    assert!(error.contains("step `take` of saga `payer` fails") && error.contains("same course"), "{error}");
}
