//! The events of an entity: their pages, and states that are rebuilt from them.

use std::sync::atomic::{AtomicI64, Ordering};

use scoop::Decider;

use super::*;
use crate::support::Database;

/// What an event adds to the sum for each unit: a changed application.
static FACTOR: AtomicI64 = AtomicI64::new(1);

/// The sums are those of one test at a time.
static ONE_TEST: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    sum: i64,
    events: i64,
}

#[entity(name = "stream-account", key = u32)]
impl Account {
    fn paid_in(&mut self, event: &PaidIn) {
        self.add(event.cents);
    }

    fn paid_out(&mut self, event: &PaidOut) {
        self.add(-event.cents);
    }
}

impl Account {
    fn add(&mut self, cents: i64) {
        self.sum += cents * FACTOR.load(Ordering::SeqCst);
        self.events += 1;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "stream-account.in")]
struct PaidIn {
    cents: i64,
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "stream-account.out")]
struct PaidOut {
    cents: i64,
}

#[derive(Clone, Serialize, Deserialize)]
struct PayIn {
    account: u32,
    cents: i64,
}

#[command(entity = Account, name = "pay-in")]
impl PayIn {
    fn key(&self) -> u32 {
        self.account
    }

    fn decide(&self, _: &Account) -> Decision<PaidIn> {
        Decision::Accepted(PaidIn { cents: self.cents })
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct PayOut {
    account: u32,
    cents: i64,
}

#[command(entity = Account, name = "pay-out")]
impl PayOut {
    fn key(&self) -> u32 {
        self.account
    }

    fn decide(&self, _: &Account) -> Decision<PaidOut> {
        Decision::Accepted(PaidOut { cents: self.cents })
    }
}

async fn start(db: &Database) -> Result<Scoop> {
    Ok(db.scoop().only::<Decider<PayIn>>().only::<Decider<PayOut>>().start().await?)
}

async fn pay_in(scoop: &Scoop, account: u32, times: i64) -> Result<()> {
    let sent = (1..=times).map(|cents| PayIn { account, cents });
    for sent in scoop.launch_all(sent).await? {
        assert_eq!(sent.wait().await?, Outcome::Committed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_key_are_read_page_by_page_with_their_types() -> Result<()> {
    let _only = ONE_TEST.lock().await;
    let db = Database::new().await;
    let scoop = start(&db).await?;
    assert_eq!(scoop.operate().entities().events::<Account>(7).await?, []);
    for cents in [5, 6] {
        scoop.send(PayIn { account: 7, cents }).await?.decision().await?;
        scoop.send(PayIn { account: 8, cents: 100 }).await?.decision().await?;
        scoop.send(PayOut { account: 7, cents: 1 }).await?.decision().await?;
    }
    let first = scoop.operate().entities().events::<Account>(7).limit(3).await?;
    let rest = scoop.operate().entities().events::<Account>(7).after(3).limit(3).await?;
    let versions =
        |page: &[scoop::entities::EntityEvent]| page.iter().map(|event| event.version).collect::<Vec<_>>();
    assert_eq!((versions(&first), versions(&rest)), (vec![1, 2, 3], vec![4]));
    assert_eq!(scoop.operate().entities().events::<Account>(7).after(4).await?, []);
    assert!(first.is_sorted_by_key(|event| event.at));
    assert_eq!(first[0].topic, "stream-account.in");
    assert_eq!(first[0].message::<PaidIn>()?, Some(PaidIn { cents: 5 }));
    assert_eq!(first[0].message::<PaidOut>()?, None, "it is of another type");
    assert_eq!(first[1].message::<PaidOut>()?, Some(PaidOut { cents: 1 }));
    let error = scoop.operate().entities().events::<Account>(7).await?[0]
        .message::<Mistaken>()
        .expect_err("no cents");
    assert!(error.to_string().contains("`stream-account` with the key `7`"), "{error}");
    Ok(())
}

/// Another type on the topic of [`PaidIn`].
#[derive(Debug, Serialize, Deserialize)]
struct Mistaken {
    euros: u8,
}

impl Message for Mistaken {
    const TOPIC: &'static str = "stream-account.in";
    type Reply = ();
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_application_takes_effect_by_a_rebuild() -> Result<()> {
    let _only = ONE_TEST.lock().await;
    FACTOR.store(1, Ordering::SeqCst);
    let db = Database::new().await;
    let scoop = start(&db).await?;
    for account in 1..=3 {
        pay_in(&scoop, account, 4).await?;
    }
    FACTOR.store(10, Ordering::SeqCst);
    assert_eq!(scoop.entity::<Account>(1).await?.state.sum, 10, "a state changes by events only");
    let one = scoop.operate().entities().rebuild::<Account>().key(2).await?;
    assert_eq!((one.entities, one.changed, one.events, one.last_key), (1, 1, 4, None));
    let two = scoop.entity::<Account>(2).await?;
    assert_eq!((two.version, two.state), (4, Account { sum: 100, events: 4 }));
    assert_eq!(scoop.entity::<Account>(1).await?.state.sum, 10);

    let some = scoop.operate().entities().rebuild::<Account>().limit(2).await?;
    assert_eq!((some.entities, some.changed, some.last_key.as_deref()), (2, 1, Some("2")));
    let rest = scoop.operate().entities().rebuild::<Account>().after("2").limit(2).await?;
    assert_eq!((rest.entities, rest.changed, rest.last_key), (1, 1, None));
    for account in 1..=3 {
        assert_eq!(scoop.entity::<Account>(account).await?.state.sum, 100);
    }
    let again = scoop.operate().entities().rebuild::<Account>().await?;
    assert_eq!((again.entities, again.changed, again.events), (3, 0, 12), "it can be repeated");
    assert_eq!(scoop.operate().entities().rebuild::<Account>().key(9).await?.events, 0, "it has no events");
    FACTOR.store(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_beside_commands_loses_none_of_their_events() -> Result<()> {
    let _only = ONE_TEST.lock().await;
    FACTOR.store(1, Ordering::SeqCst);
    let db = Database::new().await;
    let scoop = start(&db).await?;
    // More than are read at a time.
    pay_in(&scoop, 5, 230).await?;
    let sender = {
        let scoop = scoop.clone();
        tokio::spawn(async move {
            for _ in 0..6 {
                pay_in(&scoop, 5, 40).await?;
            }
            Ok::<_, Error>(())
        })
    };
    let mut rebuilds = 0;
    while !sender.is_finished() {
        let rebuilt = scoop.operate().entities().rebuild::<Account>().await?;
        assert_eq!((rebuilt.entities, rebuilt.changed), (1, 0), "the state was right all the time");
        rebuilds += 1;
    }
    sender.await.expect("it does not panic")?;
    assert!(rebuilds > 0);
    let account = scoop.entity::<Account>(5).await?;
    assert_eq!((account.version, account.state.events), (470, 470));
    assert_eq!(account.state.sum, 230 * 231 / 2 + 6 * (40 * 41 / 2));
    assert_eq!(scoop.operate().entities().rebuild::<Account>().await?.events, 470);
    Ok(())
}
