//! The progress of claims in the queues of ready runs.
//!
//! The oldest ready run comes first, and each claim leaves a dead index entry behind until a vacuum, which an open
//! transaction prevents. So a scan at the queues begins at a position, and reads nothing before it.
//!
//! **Invariant**: a ready run before the position of its queue is not visible yet. When it becomes visible, the next scan finds it.
//! Two rules make that so:
//!
//! * A transaction that makes a run ready writes a `ready_at` that is not earlier than its own beginning. Where a run returns with an
//!   earlier time, its queues are others (a change of the topology), or the claim that returns it lowers the position.
//! * A scan says which transactions were in progress ([`QueueScan::snapshot`]). It notes for each of them since when runs may come from
//!   it: the time of the last scan that did not see it. When such a transaction has ended, one scan begins there. So a transaction
//!   that only reads costs nothing, however old it is, and one that writes costs one longer look at its end.
//!
//! A run that a scan has found and not claimed, since it was locked or there were too few slots, holds the position of its queue.
//!
//! A statement may read the clock before its transaction has its id, so each scan allows for that. Now and then a scan reads
//! whole queues, for what the rules do not cover: a fail-over that the connections hide, or rows changed by hand. A clock
//! that is set back, and ids of transactions that fall, drop the positions.

use std::collections::{BTreeMap, BTreeSet};
use std::num::ParseIntError;
use std::sync::Arc;

use scoop_core::Priority;
use time::{Duration, OffsetDateTime};

use super::{ClaimQueues, Suspect};

/// A statement may read the clock so long before its transaction gets its id. Looks at intervals begin [`LATE_MAX`] earlier.
const LATE: Duration = Duration::milliseconds(20);

/// How much earlier than others the scans at intervals begin.
const LATE_MAX: Duration = Duration::SECOND;

/// Of more queues than these, only those of handlers with runs have a position: the store looks for others by their handlers.
const FEW_QUEUES: usize = 20;

/// The queue of a topic, handler, reservation and priority.
type QueueKey = (String, String, i32, Priority);

/// Since when; none for the beginning of a queue.
type Since = Option<OffsetDateTime>;

/// The positions from which claims look at queues, and the transactions in progress at the last scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QueueCursors {
    /// The position in all queues but those that have one of their own.
    reached: Since,
    /// The first runs that the last scans have found and left.
    left: BTreeMap<QueueKey, Since>,
    /// The handlers that have had runs.
    known: Arc<BTreeSet<String>>,
    /// The transactions in progress at the last scan at all queues, and since when runs of each may be ready.
    open: BTreeMap<u64, Since>,
    last: Option<LastScan>,
}

/// The last scan at all queues.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LastScan {
    at: OffsetDateTime,
    transaction: u64,
    queues: usize,
}

/// What a statement has seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueScan {
    /// When it began, by the clock of the server.
    pub(crate) at: OffsetDateTime,
    pub(crate) snapshot: Snapshot,
}

/// The transactions that were in progress when a statement began, or may have been.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// The id of the transaction of the statement: transactions with greater ids began later.
    own: u64,
    in_progress: Vec<u64>,
}

impl Snapshot {
    /// Reads the text of a `pg_snapshot`, and the id of the transaction that took it. The snapshot lists transactions in progress
    /// only below the greatest id that has ended. So those between that and the own one count as in progress, too.
    pub(super) fn parse(text: &str, own: &str) -> Result<Self, ParseIntError> {
        let mut parts = text.splitn(3, ':').skip(1);
        let (end, own): (u64, u64) = (parts.next().unwrap_or_default().parse()?, own.parse()?);
        let ids = parts.next().unwrap_or_default().split(',').filter(|id| !id.is_empty());
        let mut in_progress = ids.map(str::parse).collect::<Result<Vec<_>, _>>()?;
        in_progress.retain(|id| *id != own);
        in_progress.extend(end..own);
        Ok(Self { own, in_progress })
    }
}

impl QueueCursors {
    /// Whether a scan from these positions is one at whole queues.
    pub(crate) fn is_at_the_beginning(&self) -> bool {
        self.last.is_none()
    }

    /// Whether the last scan has left a run.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// The position in each of these queues, of the runs with this priority; `None` for its beginning.
    pub(super) fn since(&self, queues: &ClaimQueues, priority: Priority) -> Vec<Since> {
        let are_few = queues.len() <= FEW_QUEUES;
        let has_position = |handler| are_few || self.known.contains(handler);
        queues.each().map(|queue| self.position(queue, priority).filter(|_| has_position(queue.1))).collect()
    }

    fn position(&self, (topic, handler, queue): (&str, &str, i32), priority: Priority) -> Since {
        if self.left.is_empty() {
            return self.reached;
        }
        let left = self.left.get(&(topic.to_owned(), handler.to_owned(), queue, priority));
        left.copied().unwrap_or(self.reached)
    }

    /// The transactions of which runs may become visible, as texts, and since when these may be ready.
    pub(super) fn open(&self) -> (Vec<String>, Vec<Since>) {
        self.open.iter().map(|(id, since)| (id.to_string(), *since)).unzip()
    }

    pub(super) fn at(suspect: &Suspect) -> Self {
        // A forged time may be earlier than any that can be bound.
        let reached = Some(suspect.ready_at).filter(|at| *at > OffsetDateTime::UNIX_EPOCH);
        Self { reached, ..Self::default() }
    }

    /// The positions in the queues of several sagas, each with its own.
    pub(crate) fn joined<'a>(all: impl Iterator<Item = (&'a ClaimQueues, &'a Self)>) -> Self {
        let mut joined = Self::default();
        for (queues, own) in all {
            for priority in Priority::ALL {
                for ((topic, handler, queue), at) in queues.each().zip(own.since(queues, priority)) {
                    joined.left.insert((topic.to_owned(), handler.to_owned(), queue, priority), at);
                }
            }
            joined.known = Arc::new(joined.known.union(&own.known).cloned().collect());
            for (id, since) in &own.open {
                let joint = joined.open.entry(*id).or_insert(*since);
                *joint = (*joint).min(*since);
            }
        }
        joined
    }

    /// Has the next scan begin earlier by the time by which a clock may be read too early.
    pub(crate) fn rescan(&mut self) {
        self.reached = self.reached.map(|at| at - LATE_MAX);
    }

    /// Has the next scan begin at this time at the latest.
    pub(super) fn lower(&mut self, to: OffsetDateTime) {
        let to = Some(to);
        self.reached = self.reached.min(to);
        self.left.values_mut().for_each(|at| *at = (*at).min(to));
    }

    /// Records a scan for the queues with ready runs: in these, the next one begins where it would have begun before.
    pub(crate) fn record_scan(&mut self, queues: &ClaimQueues, ready: &ClaimQueues, scan: &QueueScan) {
        let ended = self.open.iter().filter(|(id, _)| !scan.snapshot.in_progress.contains(id));
        let late = ended.map(|(_, since)| *since).min();
        let mut left = vec![];
        for queue in ready.each() {
            for priority in Priority::ALL {
                let at = self.position(queue, priority);
                left.push((queue, priority, late.map_or(at, |late| at.min(late))));
            }
        }
        self.record_ready(queues, scan, left);
    }

    /// Records a scan at these queues with a claim of what it found, but for the runs that it left: the first of each queue.
    pub(crate) fn record_ready<'a>(
        &mut self,
        queues: &ClaimQueues,
        scan: &QueueScan,
        left: impl IntoIterator<Item = ((&'a str, &'a str, i32), Priority, Since)>,
    ) {
        let transaction = scan.snapshot.own;
        if self.last.is_some_and(|last| scan.at < last.at || transaction < last.transaction) {
            // The clock was set back, or this is another server.
            *self = Self::default();
            return;
        }
        let are_all = self.last.is_none_or(|last| last.queues <= queues.len());
        // Runs of later transactions may be ready before one that was left a moment ago.
        let reached = if are_all { Some(scan.at - LATE) } else { self.reached };
        let mut first = BTreeMap::new();
        for ((topic, handler, queue), priority, at) in left {
            self.know(handler);
            let since =
                first.entry((topic.to_owned(), handler.to_owned(), queue, priority)).or_insert(reached);
            *since = at.min(*since);
        }
        if !are_all {
            // Then the last scan at all queues has listed these. What was in progress then is so still, or is looked at later.
            let looked_at: BTreeSet<_> = queues.each().collect();
            self.left.retain(|(topic, handler, queue, _), _| !looked_at.contains(&(topic, handler, *queue)));
            self.left.extend(first);
            return;
        }
        let since_last = self.last.map(|last| last.at - LATE);
        let since = |id: &u64| self.open.get(id).copied().unwrap_or(since_last);
        self.open = scan.snapshot.in_progress.iter().map(|id| (*id, since(id))).collect();
        self.reached = reached;
        self.left = first;
        self.last = Some(LastScan { at: scan.at, transaction, queues: queues.len() });
    }

    pub(crate) fn know(&mut self, handler: &str) {
        if !self.known.contains(handler) {
            Arc::make_mut(&mut self.known).insert(handler.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUEUES: usize = 3;

    /// What happens to a database with a claimer, at a time in milliseconds.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// Time passes.
        Wait(i64),
        Begin,
        /// The transaction of this place makes a run of this queue ready, in so many milliseconds.
        Write(usize, usize, i64),
        /// The transaction of this place commits, or rolls back.
        End(usize, bool),
        /// A claim takes so many runs, but for one of so many, which are locked.
        Claim(usize, usize),
        /// A claim from the queues with ready runs alone, which are looked for first, so many milliseconds before.
        ClaimReady(usize, i64),
        /// A snapshot of one that only reads.
        LookBack,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (0..100_i64).prop_map(Event::Wait),
            3 => Just(Event::Begin),
            6 => (0..4_usize, 0..QUEUES, prop_oneof![Just(-19_i64), Just(0), 0..300_i64])
                .prop_map(|(place, queue, later)| Event::Write(place, queue, later)),
            3 => (0..4_usize, any::<bool>()).prop_map(|(place, commits)| Event::End(place, commits)),
            4 => (0..4_usize, 2..5_usize).prop_map(|(limit, locked)| Event::Claim(limit, locked)),
            2 => (0..4_usize, 0..50_i64).prop_map(|(limit, between)| Event::ClaimReady(limit, between)),
            1 => Just(Event::LookBack),
        ]
    }

    struct Transaction {
        id: u64,
        runs: Vec<(usize, i64)>,
    }

    #[derive(Default)]
    struct Model {
        now: i64,
        next: u64,
        /// Greater than the ids of all transactions that have ended.
        ended: u64,
        open: Vec<Transaction>,
        /// The committed runs that no claim has taken.
        ready: Vec<(usize, i64)>,
        cursors: QueueCursors,
    }

    fn at(millis: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(millis)
    }

    fn claim_queues(queues: &[usize]) -> ClaimQueues {
        let names: Vec<_> = queues.iter().map(|queue| format!("queue {queue}")).collect();
        ClaimQueues::unreserved(&vec!["topic".to_owned(); queues.len()], &names)
    }

    impl Model {
        /// What the server says: the open transactions below the greatest id that has ended, and the id of the scan.
        fn scan(&mut self) -> QueueScan {
            let (end, own) = (self.ended, self.next);
            self.next += 1;
            let ids: Vec<_> =
                self.open.iter().map(|it| it.id).filter(|id| *id < end).map(|id| id.to_string()).collect();
            let snapshot = Snapshot::parse(&format!("0:{end}:{}", ids.join(",")), &own.to_string()).unwrap();
            self.ended = own + 1;
            QueueScan { at: at(self.now), snapshot }
        }

        /// The due runs of these queues that a statement finds. It has to find all.
        fn found(&self, queues: &[usize]) -> Vec<(usize, i64)> {
            let (ids, since) = self.cursors.open();
            let is_open = |id: &String| self.open.iter().any(|it| it.id.to_string() == *id);
            let ended = ids.iter().zip(since).filter(|(id, _)| !is_open(id));
            let late = ended.map(|(_, since)| since).min();
            let positions = self.cursors.since(&claim_queues(queues), Priority::Normal);
            let due = self.ready.iter().filter(|(queue, since)| queues.contains(queue) && *since <= self.now);
            let due: Vec<_> = due.copied().collect();
            let start = |queue| {
                let position = positions[queues.iter().position(|it| *it == queue).unwrap()];
                late.map_or(position, |late| position.min(late))
            };
            let is_found =
                |(queue, since): &(usize, i64)| start(*queue).is_none_or(|start| at(*since) >= start);
            assert_eq!(due.iter().find(|run| !is_found(run)), None, "it is missed");
            due
        }

        fn claim(&mut self, queues: &[usize], limit: usize, locked: usize) {
            let mut found = self.found(queues);
            found.sort_by_key(|(_, since)| *since);
            let (mut taken, mut left) = (vec![], vec![]);
            for (nth, run) in found.into_iter().enumerate() {
                let is_taken = taken.len() < limit && (nth + 1) % locked != 0;
                if is_taken { taken.push(run) } else { left.push(run) }
            }
            for run in taken {
                let place = self.ready.iter().position(|it| *it == run).unwrap();
                self.ready.remove(place);
            }
            let (scan, claim_queues) = (self.scan(), claim_queues(queues));
            let names: Vec<_> =
                left.iter().map(|(queue, since)| (format!("queue {queue}"), *since)).collect();
            let left =
                names.iter().map(|(name, since)| (("topic", &**name, 0), Priority::Normal, Some(at(*since))));
            self.cursors.record_ready(&claim_queues, &scan, left);
        }

        fn apply(&mut self, event: Event) {
            let all: Vec<_> = (0..QUEUES).collect();
            match event {
                Event::Wait(millis) => self.now += millis,
                Event::Begin => {
                    self.open.push(Transaction { id: self.next, runs: vec![] });
                    self.next += 1;
                }
                Event::Write(place, queue, later) => {
                    let since = self.now + later;
                    if let Some(of) = self.open.get_mut(place) {
                        of.runs.push((queue, since));
                    }
                }
                Event::End(place, commits) if place < self.open.len() => {
                    let ended = self.open.remove(place);
                    self.ended = self.ended.max(ended.id + 1);
                    self.ready.extend(ended.runs.into_iter().filter(|_| commits));
                }
                Event::End(..) => {}
                Event::Claim(limit, locked) => self.claim(&all, limit, locked),
                Event::ClaimReady(limit, between) => {
                    let found = self.found(&all);
                    let ready: Vec<_> =
                        all.iter().copied().filter(|queue| found.iter().any(|(of, _)| of == queue)).collect();
                    let scan = self.scan();
                    self.cursors.record_scan(&claim_queues(&all), &claim_queues(&ready), &scan);
                    self.now += between;
                    if !ready.is_empty() {
                        self.claim(&ready, limit, usize::MAX);
                    }
                }
                Event::LookBack => self.cursors.rescan(),
            }
        }
    }

    proptest! {
        #[test]
        fn no_ready_run_that_is_visible_is_missed(events in prop::collection::vec(event(), 1..120)) {
            let mut model = Model { now: 1_000_000, next: 100, ended: 100, ..Model::default() };
            events.into_iter().for_each(|event| model.apply(event));
            // All have ended.
            while !model.open.is_empty() {
                model.apply(Event::End(0, true));
            }
            model.apply(Event::Wait(1000));
            model.apply(Event::Claim(usize::MAX, usize::MAX));
            prop_assert_eq!(model.ready, vec![]);
        }
    }

    #[test]
    fn run_that_is_ready_a_moment_before_one_that_was_left_is_found() {
        let mut model = Model { now: 1_000_000, next: 100, ended: 100, ..Model::default() };
        for later in [0, -19] {
            [Event::Begin, Event::Write(0, 2, later), Event::End(0, true), Event::Claim(0, 2)]
                .into_iter()
                .for_each(|event| model.apply(event));
        }
        assert_eq!(model.ready, [(2, 1_000_000), (2, 999_981)]);
    }

    #[test]
    fn look_after_a_transaction_of_an_hour_begins_before_it_and_the_next_one_at_its_end() {
        let (mut model, all) =
            (Model { now: 1_000_000, next: 100, ended: 100, ..Model::default() }, [0, 1, 2]);
        let starts = |model: &Model| {
            (model.cursors.since(&claim_queues(&all), Priority::Normal)[0], model.cursors.open().1)
        };
        model.claim(&all, 10, usize::MAX);
        let before = model.now;
        model.now += 1000;
        model.apply(Event::Begin);
        model.claim(&all, 10, usize::MAX);
        model.now += 3_600_000;
        model.claim(&all, 10, usize::MAX);
        assert_eq!(starts(&model), (Some(at(model.now) - LATE), vec![Some(at(before) - LATE)]));
        model.apply(Event::End(0, true));
        model.claim(&all, 10, usize::MAX);
        assert_eq!(starts(&model), (Some(at(model.now) - LATE), vec![]));
    }

    #[test]
    fn positions_of_another_server_or_of_a_clock_set_back_are_dropped() {
        let mut cursors = QueueCursors::default();
        let mut scan = |millis, next, is_dropped| {
            let snapshot = Snapshot { own: next, in_progress: vec![] };
            cursors.record_ready(&claim_queues(&[0]), &QueueScan { at: at(millis), snapshot }, []);
            assert_eq!(cursors.is_at_the_beginning(), is_dropped);
        };
        scan(2000, 7, false);
        scan(2000, 7, false);
        scan(1999, 8, true);
        scan(3000, 8, false);
        scan(4000, 7, true);
    }

    #[test]
    fn snapshot_is_read_from_its_text() {
        let snapshot = |own, in_progress: &[u64]| Ok(Snapshot { own, in_progress: in_progress.to_vec() });
        assert_eq!(Snapshot::parse("10:20:10,14,15", "20"), snapshot(20, &[10, 14, 15]));
        assert_eq!(Snapshot::parse("795:799:", "802"), snapshot(802, &[799, 800, 801]));
        assert_eq!(
            Snapshot::parse("10:20:10,15", "15"),
            snapshot(15, &[10]),
            "a second look of its transaction"
        );
        assert!(Snapshot::parse("795", "800").is_err());
        assert!(Snapshot::parse("795:799:", "").is_err());
    }

    #[test]
    fn of_many_queues_those_of_handlers_without_runs_have_no_position() {
        let all: Vec<_> = (0..=FEW_QUEUES).collect();
        let (all, mut cursors) = (claim_queues(&all), QueueCursors::default());
        cursors.know("queue 3");
        cursors.record_ready(&all, &QueueScan { at: at(0), snapshot: Snapshot::default() }, []);
        let known: Vec<_> = cursors.since(&all, Priority::Low).iter().map(Option::is_some).collect();
        assert_eq!(known.iter().filter(|is_known| **is_known).count(), 1);
        assert!(known[3]);
        assert!(
            cursors.since(&claim_queues(&[0]), Priority::Low)[0].is_some(),
            "of few queues, all have one"
        );
    }
}
