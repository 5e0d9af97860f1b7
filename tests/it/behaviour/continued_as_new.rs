//! Runs that continue as new: what begins again, what carries over, and how far a rollback goes back.

use std::time::Duration;

use super::*;
use crate::support::{Database, Notes, calls_of, compensated, eventually, invoked};

/// A feed, read from a cursor to the end.
#[derive(Clone, Default, Message, Serialize, Deserialize)]
#[message(topic = "endless-feeds", reply = u32)]
struct Feed {
    cursor: u32,
    end: u32,
    /// The cursor at which `turn` fails.
    fails_at: Option<u32>,
    /// Whether it sleeps for a day between two executions.
    sleeps: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "endless-items")]
struct Item;

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "endless.tenant")]
struct Tenant(u32);

#[derive(Serialize, Deserialize)]
struct Fetched(u32);

handler! {
    Items: "item" on Item;
    step "keep" keep [rollback = unkeep] => done();
    rollback unkeep => done();
}

handler! {
    Reader { notes: Notes }: "feed" on Feed;
    #[step(name = "fetch", rollback = unfetch)]
    async fn fetch(&self, scope: &mut Scope<'_>, feed: &Feed, last: Option<&Fetched>) -> Result<Fetched> {
        invoked(scope);
        assert!(last.is_none(), "a new execution has no values");
        let (before, visits) = (scope.all_children().await?.len(), scope.get::<Tenant>()?.map_or(0, |it| it.0));
        self.notes.add(format!("fetch {} after {before} children, visit {visits}", feed.cursor));
        self.notes.add(format!("key {}", scope.idempotency_key()));
        scope.set(Tenant(visits + 1))?;
        scope.launch(Item).await?;
        Ok(Fetched(feed.cursor))
    }

    #[step(name = "turn", rollback = unturn)]
    async fn turn(&self, scope: &mut Scope<'_>, feed: &Feed, fetched: &Fetched) -> Result<ContinueAsNew<ReaderStep, Feed>> {
        invoked(scope);
        assert_eq!((fetched.0, scope.iteration()), (feed.cursor, 0));
        if feed.fails_at == Some(feed.cursor) {
            return Err(SIMULATED.into());
        }
        if feed.cursor == feed.end {
            scope.reply(feed, feed.cursor)?;
            return Ok(Next::Continue.into());
        }
        if feed.sleeps {
            scope.sleep(Duration::from_secs(24 * 60 * 60)).await?;
        }
        Ok(Next::continue_as_new(Feed { cursor: feed.cursor + 1, ..feed.clone() }))
    }

    async fn unfetch(&self, scope: &mut Scope<'_>, feed: &Feed, fetched: &Fetched, _: &Failure) -> Result<()> {
        compensated(scope);
        self.notes.add(format!("undo {} of {}", fetched.0, feed.cursor));
        Ok(())
    }

    rollback unturn => done();
}

/// A subscription, which is paid month by month.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "endless-subscriptions")]
struct Subscription {
    customer: u32,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "endless.paid", retention = "1 day")]
struct Paid {
    cents: u32,
}

handler! {
    Billing { notes: Notes }: "billing" on Subscription;
    #[step(name = "open", rollback = close, rollback_retry(max = 1, backoff = "1ms"))]
    async fn open(&self, scope: &mut Scope<'_>, _: &Subscription) -> Result<()> {
        invoked(scope);
        Ok(())
    }

    async fn close(&self, scope: &mut Scope<'_>, _: &Subscription, _: &Failure) -> Result<()> {
        self.notes.add(format!("close month {}", scope.execution()));
        if compensated(scope) == 0 { Err(SIMULATED.into()) } else { Ok(()) }
    }

    #[step(name = "collect", awaits(Paid, by = month))]
    async fn collect(
        &self,
        scope: &mut Scope<'_>,
        billed: &Subscription,
        paid: &Paid,
    ) -> Result<ContinueAsNew<BillingStep, Subscription>> {
        self.notes.add(format!("{} cents for month {}", paid.cents, scope.execution()));
        let customer = billed.customer;
        match scope.execution() {
            1 | 2 => Ok(Next::continue_as_new(Subscription { customer })),
            _ => Err(SIMULATED.into()),
        }
    }

    async fn month(&self, scope: &mut Scope<'_>, billed: &Subscription) -> Result<String> {
        Ok(format!("{}/{}", billed.customer, scope.execution()))
    }
}

/// Reads a feed, then fails if its message says so.
#[derive(Clone, Default, Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Shop {
    feed: Feed,
    fails: bool,
}

handler! {
    Shopkeeper { notes: Notes }: "shop" on Shop;
    #[step(name = "watch")]
    async fn watch(&self, scope: &mut Scope<'_>, shop: &Shop) -> Result<()> {
        scope.set(Tenant(7))?;
        scope.launch(shop.feed.clone()).await?;
        Ok(())
    }

    #[step(name = "report")]
    async fn report(&self, scope: &mut Scope<'_>, shop: &Shop) -> Result<()> {
        let replies = scope.replies::<Feed>().await?;
        let cursor = replies[0].value;
        self.notes.add(format!("read up to {cursor}, visit {}", scope.get::<Tenant>()?.map_or(0, |it| it.0)));
        if shop.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_for_one_execution_reaches_no_later_one_and_a_rollback_knows_its_own() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let builder = db.scoop().only::<Billing>().provide(Billing { notes: notes.clone() });
    let scoop = builder.start().await?;
    let billing = scoop.launch(Subscription { customer: 7 }).await?;
    let reached = async |cents: u32, month: u32| -> Result<u64> {
        billing.comes_to(|tree| tree.roots()[0].state == RunState::AwaitingSignal).await?;
        Ok(scoop.signal(Paid { cents }, format!("7/{month}")).await?)
    };
    assert_eq!(reached(10, 1).await?, 1);
    eventually("the first month is paid", async || notes.all().len() == 1).await;
    assert_eq!(reached(11, 1).await?, 0, "the second payment of the first month is late");
    assert_eq!(reached(20, 2).await?, 1);
    eventually("the second month is paid", async || notes.all().len() == 2).await;
    assert_eq!(reached(30, 3).await?, 1);
    assert!(matches!(billing.ends().await?, Outcome::RolledBack(_)));
    let months = ["10 cents for month 1", "20 cents for month 2", "30 cents for month 3"];
    // The compensation is tried again by another claim.
    assert_eq!(notes.all(), [&months[..], &["close month 3"; 2]].concat());
    Ok(())
}

async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    let builder = db.scoop().only::<Reader>().only::<Items>().only::<Shopkeeper>();
    let builder = builder.provide(Reader { notes: notes.clone() });
    Ok(builder.provide(Shopkeeper { notes: notes.clone() }).start().await?)
}

fn feed(end: u32) -> Feed {
    Feed { end, ..Feed::default() }
}

/// The notes but for the keys, and the number of different keys.
fn texts_and_keys(notes: &Notes) -> (Vec<String>, usize) {
    let (keys, texts): (Vec<_>, Vec<_>) = notes.all().into_iter().partition(|note| note.starts_with("key"));
    (texts, keys.into_iter().collect::<std::collections::BTreeSet<_>>().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_goes_on_anew_with_a_message_and_a_fresh_history() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let root = scoop.launch(feed(2)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let expected = [
        "fetch 0 after 0 children, visit 0",
        "fetch 1 after 0 children, visit 1",
        "fetch 2 after 0 children, visit 2",
    ];
    assert_eq!(texts_and_keys(&notes), (expected.map(str::to_owned).to_vec(), 3));
    db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN feed ·
        M0 SUSPENDED feed fetch next=1 ctx={\"endless.tenant\":1}
        M0 SUSPENDED feed turn next=0 anew ctx={\"endless.tenant\":1}
        M0 SUSPENDED feed fetch next=1 ctx={\"endless.tenant\":2}
        M0 SUSPENDED feed turn next=0 anew ctx={\"endless.tenant\":2}
        M0 SUSPENDED feed fetch next=1 ctx={\"endless.tenant\":3}
        M0 SUSPENDED feed turn ctx={\"endless.tenant\":3}
        M0 COMMITTED feed turn ctx={\"endless.tenant\":3}",
    );
    let tree = root.tree().await?;
    let run = &tree.roots()[0];
    assert_eq!((run.former_executions, run.children.len()), (2, 1), "{tree}");
    assert_eq!(run.events.len(), 5, "its beginning, the step before the execution, and that: {tree}");
    assert!(tree.to_string().contains("execution 3, which began"), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_waits_for_the_last_execution() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let root = scoop.launch(Shop { feed: feed(3), fails: false }).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let (texts, _) = texts_and_keys(&notes);
    assert_eq!(texts.len(), 5);
    assert_eq!(texts[0], "fetch 0 after 0 children, visit 7");
    assert_eq!(texts[3], "fetch 3 after 0 children, visit 10");
    assert_eq!(texts[4], "read up to 3, visit 7");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_goes_back_to_the_beginning_of_its_execution() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let root = scoop.launch(Feed { fails_at: Some(2), ..feed(5) }).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    calls_of(&root).of(&["feed"]).expect(
        "invoke feed/fetch
        invoke feed/turn
        invoke feed/fetch
        invoke feed/turn
        invoke feed/fetch
        invoke feed/turn
        rollback feed/fetch",
    );
    assert_eq!(texts_and_keys(&notes).0.last().map(String::as_str), Some("undo 2 of 2"));
    assert_eq!(calls_of(&root).of(&["item"]).count(), 4, "the items of former executions stay");
    let tree = root.tree().await?;
    assert!(tree.to_string().contains("went back to execution 3, which began"), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_rollback_undoes_the_last_execution_with_its_message() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let root = scoop.launch(Shop { feed: feed(3), fails: true }).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let undone =
        || texts_and_keys(&notes).0.into_iter().filter(|note| note.starts_with("undo")).collect::<Vec<_>>();
    assert_eq!(undone(), ["undo 3 of 3"]);

    let root = scoop.launch(feed(2)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(scoop.rollback(root.id(), "a mistake").await?, RollbackAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(undone(), ["undo 3 of 3", "undo 2 of 2"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_sleeps_between_executions_can_be_cancelled_and_undoes_nothing() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let root = scoop.launch(Feed { sleeps: true, ..feed(5) }).await?;
    let tree = root.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Sleeping)).await?;
    assert_eq!(tree.roots()[0].former_executions, 1, "{tree}");
    assert_eq!(scoop.cancel(root.id(), "enough").await?, CancelAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    calls_of(&root).of(&["feed"]).expect(
        "invoke feed/fetch
        invoke feed/turn",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_of_the_launch_ends_a_later_execution() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let launch = scoop.launch(Feed { sleeps: true, ..feed(5) });
    let root = launch.deadline(Duration::from_millis(1_500)).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let tree = root.tree().await?;
    assert_eq!(tree.roots()[0].former_executions, 1, "{tree}");
    Ok(())
}

/// The message of [`Looping`].
#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "endless-loops")]
struct Loop {
    execution: u32,
}

#[derive(Serialize, Deserialize)]
struct Turn(u32);

handler! {
    /// Two executions, each with more steps than a rollback reads at a time; the second one fails.
    Looping { notes: Notes }: "looping" on Loop;
    #[step(name = "turn", rollback = unturn)]
    async fn turn(&self, scope: &mut Scope<'_>, turn: &Loop) -> Result<With<LoopingStep, Turn>> {
        let next = if scope.iteration() < 299 { Next::Repeat } else { Next::Continue };
        Ok(next.with(Turn(1_000 * turn.execution + scope.iteration())))
    }

    #[step(name = "again")]
    async fn again(&self, _: &mut Scope<'_>, turn: &Loop) -> Result<ContinueAsNew<LoopingStep, Loop>> {
        if turn.execution > 0 { Err(SIMULATED.into()) } else { Ok(Next::continue_as_new(Loop { execution: 1 })) }
    }

    async fn unturn(&self, scope: &mut Scope<'_>, turn: &Loop, value: &Turn, _: &Failure) -> Result<()> {
        assert_eq!(value.0, 1_000 * turn.execution + scope.iteration());
        self.notes.add(value.0.to_string());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_execution_is_undone_window_by_window() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.scoop().only::<Looping>().provide(Looping { notes: notes.clone() }).start().await?;
    let root = scoop.launch(Loop { execution: 0 }).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let expected: Vec<_> = (1_000..1_300).rev().map(|value: u32| value.to_string()).collect();
    assert_eq!(notes.all(), expected);
    Ok(())
}

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "endless-mistakes")]
struct Mistaken;

handler! {
    /// Launches a message in the step that continues as new.
    Mistakes: "mistakes" on Mistaken;
    #[step(name = "turn")]
    async fn turn(&self, scope: &mut Scope<'_>, _: &Mistaken) -> Result<ContinueAsNew<MistakesStep, Mistaken>> {
        scope.launch(Item).await?;
        Ok(Next::continue_as_new(Mistaken))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_launches_cannot_go_on_anew() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Mistakes>().only::<Items>().start().await?;
    let root = scoop.launch(Mistaken).await?;
    let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it failed") };
    assert_eq!(failure.kind, "LaunchedBeforeAnew");
    assert_eq!(calls_of(&root).of(&["item"]).count(), 0);
    Ok(())
}

/// Goes on anew once, and then fails. Its compensation fails at its first attempt.
#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "endless-charges")]
struct Charge(u32);

handler! {
    Charges { notes: Notes }: "charge" on Charge;
    #[step(name = "pay", rollback = refund, rollback_retry(max = 1, backoff = "1ms"))]
    async fn pay(&self, _: &mut Scope<'_>, _: &Charge) -> Result<()> {
        Ok(())
    }

    #[step(name = "turn")]
    async fn turn(&self, _: &mut Scope<'_>, charge: &Charge) -> Result<ContinueAsNew<ChargesStep, Charge>> {
        if charge.0 == 1 {
            return Err(SIMULATED.into());
        }
        Ok(Next::continue_as_new(Charge(1)))
    }

    async fn refund(&self, scope: &mut Scope<'_>, _: &Charge, _: &Failure) -> Result<()> {
        self.notes.add(format!("key {}", scope.idempotency_key()));
        if scope.attempt() == 0 { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

/// Notes what failed, with the message of the execution.
#[derive(Default)]
struct Alarms(Notes);

#[saga(name = "alarms")]
#[subscribes(Failed(saga = "charge"))]
impl Alarms {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        let charge = failed.message::<Charge>()?.map(|charge| charge.0);
        self.0.add(format!("failed with message {charge:?}"));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compensation_in_a_later_execution_has_one_key_and_its_failure_one_message() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let builder = db.scoop().only::<Charges>().only::<Alarms>();
    let builder = builder.provide(Charges { notes: notes.clone() });
    let scoop = builder.provide(Alarms(notes.clone())).start().await?;
    let root = scoop.launch(Charge(0)).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    eventually("the failure is reported", async || notes.all().len() == 3).await;
    let (texts, keys) = texts_and_keys(&notes);
    assert_eq!((texts, keys), (vec!["failed with message Some(1)".to_owned()], 1));
    Ok(())
}

/// The same feed in two versions of a program: the newer one has another first step.
macro_rules! versions {
    ($($version:ident($message:ident) { $($step:ident,)* })*) => {$(
        mod $version {
            use super::*;

            pub(super) struct Versioned {
                pub(super) notes: Notes,
            }

            #[saga(name = "versioned")]
            #[subscribes($message)]
            impl Versioned {
                $(#[step]
                async fn $step(&self, _: &mut Scope<'_>, _: &$message) -> Result<()> {
                    self.notes.add(concat!(stringify!($step), "@", stringify!($version)));
                    Ok(())
                })*

                #[step(sleep = "5s")]
                async fn turn(&self, _: &mut Scope<'_>, message: &$message) -> Result<ContinueAsNew<VersionedStep, $message>> {
                    self.notes.add(concat!("turn@", stringify!($version)));
                    Ok(if message.cursor < 2 { Next::continue_as_new(message.next()) } else { Next::Continue.into() })
                }
            }
        }
    )*};
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "endless-versions")]
struct Plain {
    cursor: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "endless-versions")]
struct Detailed {
    cursor: u32,
    currency: String,
}

impl Plain {
    fn next(&self) -> Self {
        Self { cursor: self.cursor + 1 }
    }
}

impl Detailed {
    fn next(&self) -> Self {
        Self { cursor: self.cursor + 1, currency: self.currency.clone() }
    }
}

versions! {
    older(Plain) { fetch, }
    newer(Plain) { prepare, load, }
    other(Detailed) { fetch, }
}

fn sleeps(tree: &Tree) -> bool {
    tree.roots().iter().any(|run| run.state == RunState::Sleeping)
}

#[tokio::test(flavor = "multi_thread")]
async fn new_execution_is_one_of_the_newest_program() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let older = db.scoop().only::<older::Versioned>().provide(older::Versioned { notes: notes.clone() });
    let older = older.start().await?;
    let root = older.launch(Plain { cursor: 1 }).await?;
    root.comes_to(sleeps).await?;
    older.shutdown().await?;
    let newer = db.scoop().only::<newer::Versioned>().provide(newer::Versioned { notes: notes.clone() });
    let newer = newer.start().await?;
    assert_eq!(newer.find(root.id()).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["fetch@older", "turn@older", "prepare@newer", "load@newer", "turn@newer"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_a_newer_program_cannot_read_waits_for_an_older_one() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let older = || db.scoop().only::<older::Versioned>().provide(older::Versioned { notes: notes.clone() });
    let first = older().start().await?;
    let root = first.launch(Plain { cursor: 1 }).await?;
    root.comes_to(sleeps).await?;
    first.shutdown().await?;
    let other = db.scoop().only::<other::Versioned>().provide(other::Versioned { notes: notes.clone() });
    let other = other.start().await?;
    let is_stuck = |tree: &Tree| matches!(tree.roots()[0].state, RunState::Stuck { .. });
    let tree = other.find(root.id()).await?.comes_to(is_stuck).await?;
    assert!(tree.to_string().contains("does not fit the message type"), "{tree}");
    other.shutdown().await?;
    let again = older().start().await?;
    assert_eq!(again.find(root.id()).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["fetch@older", "turn@older", "fetch@older", "turn@older"]);
    Ok(())
}
