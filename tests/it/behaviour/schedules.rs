//! Scheduled sagas: when, how often, and after what pauses.

use std::time::{Duration, SystemTime};

use scoop::HierarchyId;
use scoop::errors::SetupError;
use tokio::sync::mpsc;

use super::*;
use crate::support::{Database, Gate, eventually, warnings};

/// Sends the ticks of a saga to the test.
#[derive(Clone)]
struct TickSender(mpsc::UnboundedSender<Tick>);

/// Receives the ticks.
struct TickReceiver(mpsc::UnboundedReceiver<Tick>);

fn ticks() -> (TickSender, TickReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (TickSender(sender), TickReceiver(receiver))
}

impl TickSender {
    fn send(&self, tick: &Tick) {
        // The test may have ended.
        let _ = self.0.send(tick.clone());
    }
}

impl TickReceiver {
    /// The next ticks, in the order of their counts.
    async fn next(&mut self, count: usize) -> Vec<Tick> {
        let mut ticks = vec![];
        while ticks.len() < count {
            let tick = tokio::time::timeout(Duration::from_secs(20), self.0.recv()).await;
            let received = ticks.len();
            ticks.push(tick.unwrap_or_else(|_| panic!("only {received} of {count} ticks came")).unwrap());
        }
        ticks.sort_by_key(Tick::count);
        ticks
    }
}

/// Declares a saga that sends its ticks to the test.
macro_rules! sagas {
    ($($name:ident($($setting:tt)*))*) => {$(
        struct $name {
            sender: TickSender,
        }

        #[saga($($setting)*)]
        #[subscribes(Tick)]
        impl $name {
            #[step]
            async fn send(&self, _: &mut Scope<'_>, tick: &Tick) -> Result<()> {
                self.sender.send(tick);
                Ok(())
            }
        }
    )*};
}

sagas! {
    Brisk(name = "brisk", every = "50ms")
    EverySecond(name = "every-second", cron = "* * * * * *", zone = "Asia/Kathmandu")
    Once(name = "hourly-once", every = "1h")
    All(name = "hourly-all", every = "1h", missed = "all")
    Swift(name = "swift", every = "20ms", missed = "all")
    Skip(name = "hourly-skip", every = "1h", missed = "skip")
    Deleted(name = "deleted", every = "50ms")
    Old(name = "hourly-old", every = "1h", missed = "all")
    Daily(name = "daily", every = "1d", overlap = "skip")
    DailyByCron(name = "daily", cron = "0 3 * * *", zone = "Europe/Prague")
}

async fn next_at(db: &Database, saga: &str) -> Vec<String> {
    db.texts(&format!("SELECT next_at::text FROM scoop.schedule WHERE handler = '{saga}'")).await
}

async fn fired(db: &Database) -> i64 {
    db.number("SELECT sum(run_count)::bigint FROM scoop.schedule").await
}

/// Asserts that every launched tick was counted, and is for a time of its own.
async fn assert_each_once(db: &Database) {
    let launched = "SELECT count(*) FROM scoop.message WHERE topic LIKE 'ticks.%'";
    let distinct = |field| {
        format!(
            "SELECT count(DISTINCT (topic, payload->>'{field}')) FROM scoop.message WHERE topic LIKE 'ticks.%'"
        )
    };
    let last = "SELECT coalesce(sum(last), 0)::bigint FROM (
        SELECT max((payload->>'run')::bigint) AS last FROM scoop.message
        WHERE topic LIKE 'ticks.%' GROUP BY topic) counted";
    let counts = [
        db.number(launched).await,
        db.number(&distinct("due")).await,
        db.number(&distinct("run")).await,
        db.number(last).await,
    ];
    assert_eq!(counts, [fired(db).await; 4]);
}

mod times {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_saga_runs_again_and_again() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let scoop = db.start((Brisk { sender },)).await?;
        let mut ticks = received.next(5).await;
        scoop.shutdown().await?;

        // One may overtake another on a busy machine, since no tick waits for the run of the one before.
        ticks.sort_by_key(Tick::count);
        let counts: Vec<_> = ticks.iter().map(Tick::count).collect();
        assert!(counts.is_sorted_by(|one, next| one < next), "each has a number of its own: {counts:?}");
        let first = ticks[0].due();
        for pair in ticks.windows(2) {
            assert!(pair[1].due() > pair[0].due());
            // Delays of this process do not shift the due times.
            let since = pair[1].due().duration_since(first)?;
            assert_eq!(since.as_micros() % 50_000, 0, "{ticks:?}");
        }
        assert_each_once(&db).await;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cron_expression_is_followed() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let scoop = db.start((EverySecond { sender },)).await?;
        let ticks = received.next(2).await;
        scoop.shutdown().await?;
        for tick in &ticks {
            assert_eq!(tick.due().duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos(), 0);
        }
        assert!(ticks[1].due() > ticks[0].due());
        Ok(())
    }

    /// A tick is a message like any other, so its hierarchy can be inspected.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_starts_a_hierarchy_of_its_own() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let scoop = db.start((Brisk { sender },)).await?;
        received.next(1).await;
        let roots = "SELECT cooperation_lineage[1]::text FROM scoop.message_event e
            JOIN scoop.message m ON m.id = e.message_id
            WHERE type = 'EMITTED' ORDER BY (payload->>'run')::int LIMIT 1";
        let root = db.texts(roots).await[0].parse::<HierarchyId>()?;
        let root = scoop.find(root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(root.tree().await?.runs()[0].handler, "brisk");
        // As the reference implementation counts the runs of a periodic saga.
        let counts = "SELECT DISTINCT e.context::text FROM scoop.message_event e
            JOIN scoop.message m ON m.id = e.message_id WHERE (payload->>'run')::int = 1";
        assert_eq!(db.texts(counts).await, [r#"{"RunCountKey": {"value": 1}}"#]);
        scoop.shutdown().await?;
        Ok(())
    }
}

mod missed {
    use super::*;

    /// Three hours and a half during which no process lived.
    async fn sleep_through(db: &Database, saga: &str) -> (String, SystemTime) {
        let away = "UPDATE scoop.schedule SET next_at = clock_timestamp() - interval '210 minutes'";
        db.execute(&format!("{away} WHERE handler = '{saga}'")).await;
        let micros =
            db.number("SELECT (extract(epoch FROM min(next_at)) * 1000000)::bigint FROM scoop.schedule");
        let first = SystemTime::UNIX_EPOCH + Duration::from_micros(micros.await.unsigned_abs());
        (next_at(db, saga).await.remove(0), first)
    }

    /// The distance of the next time from the first missed one, once the next time is in the
    /// future.
    async fn moved_on(db: &Database, first: &str) -> Vec<String> {
        eventually("the schedule has moved on", async || {
            db.number("SELECT count(*) FROM scoop.schedule WHERE next_at > clock_timestamp()").await == 1
        })
        .await;
        db.texts(&format!("SELECT (next_at - '{first}')::text FROM scoop.schedule")).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_run_makes_up_for_all() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let start = async || db.start((Once { sender: sender.clone() },)).await;
        start().await?.shutdown().await?;
        let (first, due) = sleep_through(&db, "hourly-once").await;
        let scoop = start().await?;
        let tick = received.next(1).await.remove(0);
        assert_eq!((tick.due(), tick.count()), (due, 1));
        assert_eq!(moved_on(&db, &first).await, ["04:00:00"]);
        scoop.shutdown().await?;
        assert_eq!(fired(&db).await, 1);
        assert_each_once(&db).await;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_is_made_up_for() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let start = async || db.start((All { sender: sender.clone() },)).await;
        start().await?.shutdown().await?;
        let (first, due) = sleep_through(&db, "hourly-all").await;
        let scoop = start().await?;
        let ticks = received.next(4).await;
        let hour = Duration::from_secs(3600);
        let expected = [(1, due), (2, due + hour), (3, due + 2 * hour), (4, due + 3 * hour)];
        assert_eq!(ticks.iter().map(|tick| (tick.count(), tick.due())).collect::<Vec<_>>(), expected);
        assert_eq!(moved_on(&db, &first).await, ["04:00:00"]);
        scoop.shutdown().await?;
        assert_each_once(&db).await;
        Ok(())
    }

    /// More than go into one transaction.
    #[tokio::test(flavor = "multi_thread")]
    async fn very_many_are_made_up_for() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let start = async || db.start((All { sender: sender.clone() },)).await;
        start().await?.shutdown().await?;
        db.execute("UPDATE scoop.schedule SET next_at = next_at - interval '250 hours'").await;
        let scoop = start().await?;
        let ticks = received.next(250).await;
        assert_eq!(ticks.last().map(Tick::count), Some(250));
        scoop.shutdown().await?;
        assert_each_once(&db).await;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn others_do_not_wait_until_all_are_made_up_for() -> Result<()> {
        let db = Database::new().await;
        let (sender, _heard) = ticks();
        let (brisk_told, mut brisk_heard) = ticks();
        let all = || db.scoop().only::<All>().provide(All { sender: sender.clone() });
        all().start().await?.shutdown().await?;
        db.execute("UPDATE scoop.schedule SET next_at = next_at - interval '1000000 hours'").await;
        let scoop = all().only::<Brisk>().provide(Brisk { sender: brisk_told }).start().await?;
        brisk_heard.next(3).await;
        scoop.shutdown().await?;
        let behind =
            "SELECT count(*) FROM scoop.schedule WHERE missed = 'all' AND next_at < clock_timestamp()";
        assert_eq!(db.number(behind).await, 1);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn forged_time_of_1900_is_made_up_for_with_the_newest_times_only() -> Result<()> {
        let db = Database::new().await;
        warnings("");
        let ((sender, mut received), (brisk_told, mut brisk_heard)) = (ticks(), ticks());
        let old = || db.scoop().only::<Old>().provide(Old { sender: sender.clone() });
        old().start().await?.shutdown().await?;
        db.execute("UPDATE scoop.schedule SET next_at = '1900-01-01'").await;
        let scoop = old().only::<Brisk>().provide(Brisk { sender: brisk_told }).start().await?;
        let oldest = received.next(1).await.remove(0).due();
        brisk_heard.next(3).await;
        scoop.shutdown().await?;
        let age = SystemTime::now().duration_since(oldest)?.as_secs() / 3_600;
        assert!((9_900..=10_000).contains(&age), "{age} hours");
        let skipped = warnings("missed times of saga `hourly-old` skipped");
        assert_eq!(skipped.len(), 1, "{skipped:?}");
        assert!(skipped[0].contains("1900-01-01T00:00:00.000Z"), "{skipped:?}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn they_are_let_go() -> Result<()> {
        let db = Database::new().await;
        let (sender, _heard) = ticks();
        let start = async || db.start((Skip { sender: sender.clone() },)).await;
        start().await?.shutdown().await?;
        let (first, _) = sleep_through(&db, "hourly-skip").await;
        let scoop = start().await?;
        assert_eq!(moved_on(&db, &first).await, ["04:00:00"]);
        scoop.shutdown().await?;
        assert_eq!(fired(&db).await, 0);
        assert_each_once(&db).await;
        Ok(())
    }
}

mod processes {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn two_run_each_time_once() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let start = async |pool| {
            let sender = sender.clone();
            Scoop::builder().postgres(pool).only::<Brisk>().provide(Brisk { sender }).start().await
        };
        let (one, other) = (start(db.another_pool(6).await).await?, start(db.another_pool(6).await).await?);
        received.next(20).await;
        one.shutdown().await?;
        received.next(5).await;
        other.shutdown().await?;
        assert_each_once(&db).await;
        Ok(())
    }

    /// A process that is stopped in the middle of a launch leaves such a lock.
    #[tokio::test(flavor = "multi_thread")]
    async fn locked_schedule_does_not_block_others() -> Result<()> {
        let db = Database::new().await;
        let ((sender, mut received), (brisk_told, mut brisk_heard)) = (ticks(), ticks());
        let scoop = db.start((Once { sender }, Brisk { sender: brisk_told })).await?;
        let other = db.another_pool(1).await;
        let mut taken = other.begin().await?;
        sqlx::query(
            "UPDATE scoop.schedule SET next_at = next_at - interval '5 hours' WHERE handler = 'hourly-once'",
        )
        .execute(&mut *taken)
        .await?;
        brisk_heard.next(3).await;
        taken.commit().await?;
        // The lock may come before or after the next launch: it makes no difference.
        let mut taken = other.begin().await?;
        sqlx::query("SELECT FROM scoop.schedule WHERE handler = 'hourly-once' FOR UPDATE")
            .execute(&mut *taken)
            .await?;
        brisk_heard.next(3).await;
        taken.rollback().await?;
        assert_eq!(received.next(1).await[0].count(), 1);
        scoop.shutdown().await?;
        assert_each_once(&db).await;
        Ok(())
    }

    /// A tick is launched and its schedule advanced in one transaction, so that a cut at any point
    /// does no harm.
    #[tokio::test(flavor = "multi_thread")]
    async fn connections_that_are_cut_lose_and_repeat_nothing() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let start = async || db.start((Swift { sender: sender.clone() },)).await;
        start().await?.shutdown().await?;
        db.execute(
            "TRUNCATE scoop.message, scoop.message_event; DELETE FROM scoop.run;
             UPDATE scoop.schedule SET run_count = 0, next_at = next_at - interval '20 seconds'",
        )
        .await;
        let admin = db.another_pool(1).await;
        let scoop = start().await?;
        let fired = async || -> i64 {
            let fired = sqlx::query_scalar("SELECT run_count FROM scoop.schedule").fetch_one(&admin).await;
            fired.expect("this connection is never cut")
        };
        // Cuts after some progress each time, most often in the middle of the next launch.
        for _ in 0..5 {
            let before = fired().await;
            eventually("there is progress", async || fired().await > before).await;
            // A session that is ending may have made this progress, before a new one exists.
            eventually("there is a session to end", async || {
                let cut = sqlx::query_scalar(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                );
                cut.fetch_one(&admin).await.is_ok_and(|sessions: i64| sessions > 0)
            })
            .await;
        }
        received.next(100).await;
        let caught_up = "SELECT next_at > clock_timestamp() - interval '1 second' FROM scoop.schedule";
        eventually("all missed times are made up for", async || {
            sqlx::query_scalar(caught_up).fetch_one(&admin).await.unwrap_or(false)
        })
        .await;
        scoop.shutdown().await?;

        // Connections of the pool may still be dead.
        let (fired, launched, times, last): (i64, i64, i64, i64) = sqlx::query_as(
            "SELECT (SELECT run_count FROM scoop.schedule), count(*), count(DISTINCT payload->>'due'),
                 (extract(epoch FROM max((payload->>'due')::timestamptz) - min((payload->>'due')::timestamptz)) * 50)::bigint
             FROM scoop.message",
        )
        .fetch_one(&admin)
        .await?;
        assert!(fired >= 1_000, "{fired}");
        assert_eq!([launched, times, last + 1], [fired; 3]);
        Ok(())
    }
}

mod changes {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn unchanged_schedule_keeps_its_next_time() -> Result<()> {
        let db = Database::new().await;
        let (sender, _heard) = ticks();
        let start = async || db.start((Daily { sender: sender.clone() },)).await;
        start().await?.shutdown().await?;
        let before = next_at(&db, "daily").await;
        start().await?.shutdown().await?;
        assert_eq!(next_at(&db, "daily").await, before);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_schedule_that_changed_begins_anew() -> Result<()> {
        let db = Database::new().await;
        let (sender, _heard) = ticks();
        let daily = db.start((Daily { sender: sender.clone() },)).await?;
        daily.shutdown().await?;
        // An unchanged schedule would make up for this.
        db.execute("UPDATE scoop.schedule SET next_at = clock_timestamp() - interval '2 days'").await;
        let by_cron = db.start((DailyByCron { sender },)).await?;
        let found = db.texts(
            "SELECT concat_ws(' | ', cron, zone, missed, overlap, every_ms, (next_at AT TIME ZONE 'Europe/Prague')::time,
                 next_at > clock_timestamp(), run_count) FROM scoop.schedule",
        );
        assert_eq!(found.await, ["0 3 * * * | Europe/Prague | once | allow | 03:00:00 | t | 0"]);
        by_cron.shutdown().await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn schedule_of_an_absent_saga_waits_for_its_program() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let both = async || {
            let builder = db.scoop().only::<Once>().only::<Brisk>();
            builder
                .provide(Once { sender: sender.clone() })
                .provide(Brisk { sender: sender.clone() })
                .start()
                .await
        };
        both().await?.shutdown().await?;
        db.execute("UPDATE scoop.schedule SET next_at = next_at - interval '5 hours' WHERE every_ms > 1000")
            .await;
        let missed = next_at(&db, "hourly-once").await;
        let (brisk_told, mut brisk_heard) = ticks();
        let brisk = db.start((Brisk { sender: brisk_told },)).await?;
        brisk_heard.next(3).await;
        brisk.shutdown().await?;
        assert_eq!(next_at(&db, "hourly-once").await, missed);

        let again = both().await?;
        eventually("it is made up for", async || next_at(&db, "hourly-once").await != missed).await;
        received.next(1).await;
        again.shutdown().await?;
        Ok(())
    }

    /// As a later version may have stored it.
    #[tokio::test(flavor = "multi_thread")]
    async fn schedule_of_an_unknown_kind_is_left_unchanged() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let scoop = db.start((Once { sender: sender.clone() }, Brisk { sender })).await?;
        db.execute(
            "UPDATE scoop.schedule SET missed = 'perhaps', next_at = '2026-01-01Z' WHERE handler = 'hourly-once'",
        )
        .await;
        let unknown = next_at(&db, "hourly-once").await;
        received.next(3).await;
        scoop.shutdown().await?;
        assert_eq!(next_at(&db, "hourly-once").await, unknown);
        Ok(())
    }

    /// The other schedule of the program goes on.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_schedule_that_the_database_refuses_is_left_alone() -> Result<()> {
        let db = Database::new().await;
        warnings("");
        let (sender, mut received) = ticks();
        let scoop = db.start((Once { sender: sender.clone() }, Brisk { sender })).await?;
        db.execute(
            "UPDATE scoop.schedule SET run_count = 9223372036854775807, next_at = '-infinity'
             WHERE handler = 'hourly-once'",
        )
        .await;
        let is_refused = async || !warnings("bigint out of range").is_empty();
        eventually("it is refused", is_refused).await;
        received.next(3).await;
        scoop.shutdown().await?;
        assert_eq!(next_at(&db, "hourly-once").await, ["-infinity"]);
        let refused = warnings("bigint out of range");
        assert_eq!(refused.iter().filter(|warning| warning.contains("hourly-once")).count(), 1);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deleted_schedule_is_registered_again_with_a_warning() -> Result<()> {
        let db = Database::new().await;
        warnings("");
        let ((sender, mut received), (brisk_told, mut brisk_heard)) = (ticks(), ticks());
        let scoop = db.start((Deleted { sender }, Brisk { sender: brisk_told })).await?;
        received.next(2).await;
        db.execute("DELETE FROM scoop.schedule WHERE handler = 'deleted'").await;
        let fires_again = "SELECT count(*) FROM scoop.schedule WHERE handler = 'deleted' AND run_count > 0";
        eventually("it fires again", async || db.number(fires_again).await == 1).await;
        brisk_heard.next(3).await;
        scoop.shutdown().await?;
        let unlisted = warnings("schedule of saga `deleted` is not registered");
        assert_eq!(unlisted.len(), 1, "{unlisted:?}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_infinitely_early_time_is_due() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let start = async || db.start((Once { sender: sender.clone() },)).await;
        start().await?.shutdown().await?;
        db.execute("UPDATE scoop.schedule SET next_at = '-infinity'").await;
        let scoop = start().await?;
        let has_moved_on = async || next_at(&db, "hourly-once").await != ["-infinity"];
        eventually("it is made up for", has_moved_on).await;
        received.next(1).await;
        scoop.shutdown().await?;
        Ok(())
    }
}

mod overlap {
    use super::*;

    struct Patient {
        gate: Gate,
    }

    #[saga(every = "50ms", overlap = "skip")]
    #[subscribes(Tick)]
    impl Patient {
        #[step]
        async fn wait(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            self.gate.pass().await;
            Ok(())
        }
    }

    struct Impatient {
        gate: Gate,
    }

    #[saga(every = "50ms")]
    #[subscribes(Tick)]
    impl Impatient {
        #[step]
        async fn wait(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            self.gate.pass().await;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn runs_may_overlap() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.start((Impatient { gate: gate.clone() },)).await?;
        gate.arrivals(3).await;
        gate.open(1_000);
        scoop.shutdown().await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_time_during_the_last_run_can_be_let_go() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.start((Patient { gate: gate.clone() },)).await?;
        gate.arrivals(1).await;
        for _ in 0..3 {
            let before = next_at(&db, "patient").await;
            eventually("a time passes", async || next_at(&db, "patient").await != before).await;
        }
        assert_eq!((gate.arrived(), fired(&db).await), (0, 1));
        gate.open(1);
        gate.arrivals(1).await;
        gate.open(1_000);
        scoop.shutdown().await?;
        assert_each_once(&db).await;
        Ok(())
    }

    /// Its rollback fails.
    struct Broken;

    #[saga(every = "50ms", overlap = "skip")]
    #[subscribes(Tick)]
    impl Broken {
        #[step(rollback = undo)]
        async fn act(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn fail(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Err(SIMULATED.into())
        }

        async fn undo(&self, _: &mut Scope<'_>, _: &Tick, _: &Failure) -> Result<()> {
            Err(SIMULATED.into())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failed_rollback_of_the_last_run_lets_no_time_go() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Broken,)).await?;
        eventually("several runs rest as failed", async || {
            scoop.operate().failures().list().await.expect("the database answers").len() > 2
        })
        .await;
        scoop.shutdown().await?;
        Ok(())
    }
}

mod by_hand {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_beside_the_schedule_is_counted_and_changes_nothing_else() -> Result<()> {
        let db = Database::new().await;
        let (sender, mut received) = ticks();
        let scoop = db.start((Daily { sender },)).await?;
        let before = next_at(&db, "daily").await;
        let asked = SystemTime::now() - Duration::from_secs(60);
        assert_eq!(scoop.trigger::<Daily>().await?.ends().await?, Outcome::Committed);
        let client = Scoop::client(db.pool().clone());
        assert_eq!(client.trigger::<Daily>().await?.ends().await?, Outcome::Committed);
        assert_eq!(client.operate().schedules().trigger("daily").await?.ends().await?, Outcome::Committed);
        let ticks = received.next(3).await;
        assert_eq!(ticks.iter().map(Tick::count).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(ticks[0].due() > asked && ticks[1].due() > ticks[0].due());
        assert_eq!((next_at(&db, "daily").await, fired(&db).await), (before, 3));
        scoop.shutdown().await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_saga_that_no_program_has_cannot_be_run() {
        let db = Database::new().await;
        let client = Scoop::client(db.pool().clone());
        let refused = client.trigger::<Daily>().await.err().expect("no program has it");
        let expected = "saga `daily` has no schedule; ";
        assert!(refused.is_not_found() && refused.to_string().starts_with(expected), "{refused:?}");
        let refused = client.operate().schedules().trigger("daily").await.err();
        assert!(refused.as_ref().is_some_and(|error| error.is_not_found()), "{refused:?}");
    }
}

mod setup {
    use super::*;

    /// The attribute does not recognize an alias as `Tick`.
    type Alias = Tick;

    handler! {
        Never: "never" on Alias;
        step "step" step => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn saga_of_ticks_without_a_schedule_prevents_the_start() {
        let db = Database::new().await;
        let Err(error) = db.start((Never,)).await else { panic!("it started") };
        let found = error.setup();
        assert!(matches!(found, [SetupError::Schedule { name, .. }] if name == "never"), "{error:?}");
        assert!(found[0].to_string().contains("#[saga(every = \"1h\")]"), "{}", found[0]);
    }

    /// A message type of the user may have the name `Tick`.
    mod another {
        use super::*;

        #[derive(Message, Serialize, Deserialize)]
        struct Tick;

        handler! {
            Parasites: "parasites" on Tick;
            step "step" step => done();
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_message_may_have_the_same_name() -> Result<()> {
            let db = Database::new().await;
            let scoop = db.start((Parasites,)).await?;
            assert_eq!(scoop.launch(Tick).await?.ends().await?, Outcome::Committed);
            Ok(())
        }
    }
}
