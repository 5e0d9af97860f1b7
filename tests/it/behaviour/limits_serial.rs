//! Sagas whose runs are executed one after the other, each from its beginning to its end.

use std::time::Duration;

use scoop::operate::{LimitKey, WaitKind, WaitReason};
use scoop::{Handle, RunPhase};

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "serial.transfer")]
struct Transfer {
    account: u32,
    number: u32,
    /// Whether it fails in its last step, and whether its rollback does then.
    fails: bool,
    cannot_undo: bool,
}

fn transfer(account: u32, number: u32) -> Transfer {
    Transfer { account, number, fails: false, cannot_undo: false }
}

impl Transfer {
    fn key(&self) -> String {
        format!("{}.{}", self.account, self.number)
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "serial.booking")]
struct Booking;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "serial.confirmed", retention = "1 day")]
struct Confirmed;

/// Waits for a child, and then for a signal.
#[derive(Clone, Default)]
struct Transfers {
    notes: Notes,
}

#[saga(name = "serial-transfers", serial(by = account))]
#[subscribes(Transfer)]
impl Transfers {
    #[step(rollback = unbook)]
    async fn book(&self, scope: &mut Scope<'_>, transfer: &Transfer) -> Result<()> {
        self.notes.add(format!("{} books", transfer.key()));
        scope.launch(Booking).await?;
        Ok(())
    }

    #[step(awaits(Confirmed, by = number))]
    async fn confirm(&self, _: &mut Scope<'_>, transfer: &Transfer, _: &Confirmed) -> Result<()> {
        self.notes.add(format!("{} is confirmed", transfer.key()));
        if transfer.fails { Err(Error::msg("it has no cover")) } else { Ok(()) }
    }

    async fn number(&self, _: &mut Scope<'_>, transfer: &Transfer) -> Result<String> {
        Ok(transfer.key())
    }

    async fn unbook(&self, _: &mut Scope<'_>, transfer: &Transfer, _: &Failure) -> Result<()> {
        if transfer.cannot_undo {
            return Err(Error::msg("the ledger is closed"));
        }
        self.notes.add(format!("{} is undone", transfer.key()));
        Ok(())
    }
}

/// Stops at its gate.
#[derive(Clone, Default)]
struct Bookings {
    gate: Gate,
}

#[saga(name = "serial-bookings")]
#[subscribes(Booking)]
impl Bookings {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Booking) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

async fn start(db: &Database, transfers: &Transfers, bookings: &Bookings) -> Result<Scoop> {
    let program = db.scoop().only::<Transfers>().only::<Bookings>().poll_interval(NEVER);
    Ok(program.provide(transfers.clone()).provide(bookings.clone()).start().await?)
}

async fn limited(scoop: &Scoop, count: usize) {
    eventually("runs wait for their turn", async || {
        scoop
            .operate()
            .runs()
            .list()
            .waiting_for(WaitKind::Limit)
            .await
            .is_ok_and(|page| page.runs.len() == count)
    })
    .await;
}

async fn in_phase(scoop: &Scoop, run: &Handle, phase: RunPhase) {
    eventually("a run is in a state", async || {
        scoop
            .operate()
            .runs()
            .explain(run.id())
            .await
            .is_ok_and(|it| it.runs.iter().any(|it| it.run.phase == phase))
    })
    .await;
}

async fn confirm(scoop: &Scoop, transfer: Transfer) -> Result<()> {
    scoop.signal(Confirmed, transfer.key()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn next_run_of_a_key_begins_when_the_one_before_has_ended() -> Result<()> {
    let (db, transfers, bookings) = (Database::new().await, Transfers::default(), Bookings::default());
    let scoop = start(&db, &transfers, &bookings).await?;
    let mut all = vec![];
    for number in 1..=3 {
        all.push(scoop.launch(transfer(7, number)).await?);
    }
    bookings.gate.arrivals(1).await;
    limited(&scoop, 2).await;
    let other = scoop.launch(transfer(8, 1)).await?;
    bookings.gate.arrivals(1).await;
    assert_eq!(transfers.notes.all(), ["7.1 books", "8.1 books"], "another key has its own turn");
    let holder = scoop.operate().runs().explain(all[0].id()).await?.runs[0].run.run;
    let last = scoop.operate().runs().explain(all[2].id()).await?;
    let reason = |phase| WaitReason::Limit {
        concurrency: 1,
        serial: true,
        key: Some(LimitKey::new("account", "7")),
        holders: vec![(holder, phase)],
        ahead: 1,
        queued: 2,
    };
    assert_eq!(last.runs[0].reason, reason(RunPhase::Waiting), "{last}");
    let text = last.to_string();
    assert!(
        text.contains("at most 1 run until its end, and 1 run is ahead of it in its queue of 2"),
        "{text}"
    );
    assert!(text.contains(&format!("Before it: {holder}, now waiting")), "{text}");
    bookings.gate.open(4);
    in_phase(&scoop, &all[0], RunPhase::AwaitingSignal).await;
    let last = scoop.operate().runs().explain(all[2].id()).await?;
    assert_eq!(last.runs[0].reason, reason(RunPhase::AwaitingSignal), "{last}");
    for number in 1..=3 {
        confirm(&scoop, transfer(7, number)).await?;
    }
    confirm(&scoop, transfer(8, 1)).await?;
    all.push(other);
    for transfer in all {
        assert_eq!(transfer.ends().await?, Outcome::Committed);
    }
    let of_seven: Vec<_> = transfers.notes.all().into_iter().filter(|note| note.starts_with("7.")).collect();
    let expected =
        ["7.1 books", "7.1 is confirmed", "7.2 books", "7.2 is confirmed", "7.3 books", "7.3 is confirmed"];
    assert_eq!(of_seven, expected);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_waits_keeps_its_key_when_programs_end_and_start() -> Result<()> {
    let (db, transfers, bookings) = (Database::new().await, Transfers::default(), Bookings::default());
    bookings.gate.open(9);
    let former = start(&db, &transfers, &bookings).await?;
    let first = former.launch(transfer(7, 1)).await?;
    in_phase(&former, &first, RunPhase::AwaitingSignal).await;
    former.shutdown().await?;
    let scoop = start(&db, &transfers, &bookings).await?;
    let second = scoop.launch(transfer(7, 2)).await?;
    limited(&scoop, 1).await;
    assert_eq!(transfers.notes.all(), ["7.1 books"]);
    confirm(&scoop, transfer(7, 1)).await?;
    confirm(&scoop, transfer(7, 2)).await?;
    assert_eq!(second.ends().await?, Outcome::Committed);
    assert_eq!(transfers.notes.all(), ["7.1 books", "7.1 is confirmed", "7.2 books", "7.2 is confirmed"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_is_part_of_a_turn_and_one_that_has_failed_blocks_its_key() -> Result<()> {
    let (db, transfers, bookings) = (Database::new().await, Transfers::default(), Bookings::default());
    bookings.gate.open(9);
    let scoop = start(&db, &transfers, &bookings).await?;
    let first = Transfer { fails: true, cannot_undo: true, ..transfer(7, 1) };
    let first_run = scoop.launch(first).await?;
    let second = scoop.launch(transfer(7, 2)).await?;
    confirm(&scoop, first).await?;
    in_phase(&scoop, &first_run, RunPhase::RollbackFailed).await;
    limited(&scoop, 1).await;
    let holder = scoop.operate().runs().explain(first_run.id()).await?.runs[0].run.run;
    let text = scoop.operate().runs().explain(second.id()).await?.to_string();
    assert!(text.contains(&format!("Before it: {holder}, now rollback failed")), "{text}");
    assert_eq!(transfers.notes.all(), ["7.1 books", "7.1 is confirmed"]);
    scoop.operate().failures().skip(holder, "by hand").await?;
    confirm(&scoop, transfer(7, 2)).await?;
    assert_eq!(second.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_or_overdue_run_that_has_not_begun_ends_before_its_turn() -> Result<()> {
    let (db, transfers, bookings) = (Database::new().await, Transfers::default(), Bookings::default());
    bookings.gate.open(9);
    let scoop = start(&db, &transfers, &bookings).await?;
    let first = scoop.launch(transfer(7, 1)).await?;
    in_phase(&scoop, &first, RunPhase::AwaitingSignal).await;
    let second = scoop.launch(transfer(7, 2)).await?;
    let third = scoop.launch(transfer(7, 3)).await?;
    let late = scoop.launch(transfer(7, 4)).deadline(Duration::from_secs(1)).await?;
    limited(&scoop, 3).await;
    scoop.cancel(second.id(), "a test").await?;
    assert!(matches!(second.ends().await?, Outcome::RolledBack(_)));
    assert!(matches!(late.ends().await?, Outcome::RolledBack(_)), "at its deadline");
    limited(&scoop, 1).await;
    assert_eq!(transfers.notes.all(), ["7.1 books"], "it has freed no key");
    confirm(&scoop, transfer(7, 1)).await?;
    confirm(&scoop, transfer(7, 3)).await?;
    assert_eq!(third.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "serial.report")]
struct Report {
    number: u32,
}

/// All its runs have the same key.
#[derive(Clone, Default)]
struct Reports {
    notes: Notes,
}

#[saga(name = "serial-reports", serial)]
#[subscribes(Report)]
impl Reports {
    #[step]
    async fn collect(&self, scope: &mut Scope<'_>, report: &Report) -> Result<()> {
        self.notes.add(format!("begins {}", report.number));
        scope.sleep(Duration::from_millis(1)).await?;
        Ok(())
    }

    #[step]
    async fn send(&self, _: &mut Scope<'_>, report: &Report) -> Result<()> {
        self.notes.add(format!("ends {}", report.number));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_runs_of_a_serial_saga_follow_each_other_in_several_processes() -> Result<()> {
    let (db, reports) = (Database::new().await, Reports::default());
    let program = || db.scoop().only::<Reports>().provide(reports.clone());
    let (one, other) = (program().start().await?, program().start().await?);
    let limits =
        one.operate().handlers().list().await?.iter().map(|it| it.limits.to_string()).collect::<Vec<_>>();
    assert_eq!(limits, ["serial"]);
    let mut all = vec![];
    for number in 0..20 {
        all.push(one.launch(Report { number }).await?);
    }
    for report in all {
        assert_eq!(report.ends().await?, Outcome::Committed);
    }
    let expected: Vec<_> =
        (0..20).flat_map(|number| [format!("begins {number}"), format!("ends {number}")]).collect();
    assert_eq!(reports.notes.all(), expected);
    one.shutdown().await?;
    other.shutdown().await?;
    Ok(())
}

/// The saga of a newer program, which computes other keys.
#[derive(Clone, Default)]
struct NewerTransfers {
    transfers: Transfers,
}

#[saga(name = "serial-transfers", serial(by = account))]
#[subscribes(Transfer)]
impl NewerTransfers {
    #[step(rollback = unbook)]
    async fn book(&self, scope: &mut Scope<'_>, transfer: &Transfer) -> Result<()> {
        self.transfers.book(scope, transfer).await
    }

    #[step(awaits(Confirmed, by = number))]
    async fn confirm(&self, scope: &mut Scope<'_>, transfer: &Transfer, confirmed: &Confirmed) -> Result<()> {
        self.transfers.confirm(scope, transfer, confirmed).await
    }

    #[step]
    async fn archive(&self, _: &mut Scope<'_>, transfer: &Transfer) -> Result<()> {
        self.transfers.notes.add(format!("{} is archived", transfer.key()));
        Ok(())
    }

    async fn number(&self, scope: &mut Scope<'_>, transfer: &Transfer) -> Result<String> {
        self.transfers.number(scope, transfer).await
    }

    async fn unbook(&self, scope: &mut Scope<'_>, transfer: &Transfer, why: &Failure) -> Result<()> {
        self.transfers.unbook(scope, transfer, why).await
    }

    fn account(&self, transfer: &Transfer) -> String {
        format!("account {}", transfer.account + transfer.number)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_keeps_the_key_of_its_first_claim_in_a_program_that_computes_others() -> Result<()> {
    let (db, transfers, bookings) = (Database::new().await, Transfers::default(), Bookings::default());
    bookings.gate.open(9);
    let former = start(&db, &transfers, &bookings).await?;
    let first = former.launch(transfer(7, 1)).await?;
    in_phase(&former, &first, RunPhase::AwaitingSignal).await;
    let second = former.launch(transfer(7, 2)).await?;
    limited(&former, 1).await;
    former.shutdown().await?;
    let newer = db.scoop().only::<NewerTransfers>().only::<Bookings>().poll_interval(NEVER);
    let newer = newer.provide(NewerTransfers { transfers: transfers.clone() }).provide(bookings);
    let newer = newer.start().await?;
    // The keys of the newer program are other ones, and those of the former one count where runs have them.
    confirm(&newer, transfer(7, 1)).await?;
    confirm(&newer, transfer(7, 2)).await?;
    assert_eq!(newer.find(first.id()).await?.ends().await?, Outcome::Committed);
    assert_eq!(newer.find(second.id()).await?.ends().await?, Outcome::Committed);
    let expected = [
        "7.1 books",
        "7.1 is confirmed",
        "7.1 is archived",
        "7.2 books",
        "7.2 is confirmed",
        "7.2 is archived",
    ];
    assert_eq!(transfers.notes.all(), expected);
    newer.shutdown().await?;
    Ok(())
}
