//! The events that a follower has read, so that it reads each of the others once.
//!
//! Transactions commit in any order, so neither ids nor times of events rise in the order in which they become visible.
//! What does rise is the oldest transaction that is still open, the horizon: all before it have ended, and what they wrote
//! can be read. A round reads what all transactions from the former horizon on have written, and leaves out what it has
//! read of them before. It has to remember only those events whose transactions are not before its own horizon.
//!
//! Only the ids of events have an index that rises about with time. So a follower also remembers some times with the
//! transactions that had begun by then: what transactions from the horizon on write is later than one of these times.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use scoop_core::{Escaped, EventKind, Lineage};
use time::{Duration, OffsetDateTime};
use uuid::{Builder, Uuid};

use super::FailureSummary;
use crate::util::format::utc;
use crate::util::stored_time::StoredTime;
use crate::{HierarchyId, RunId};

/// The longest time by which the id of an event may be older than its row: the lag of the clock of the program that made
/// the id, and the time until the row was written.
const AGE_MAX: Duration = Duration::MINUTE;

/// The number of events that a follower remembers. With more it waits for the oldest open transaction.
pub(crate) const REMEMBERED_MAX: usize = 10_000;

/// The number of remembered times.
const SAMPLES_MAX: usize = 64;

/// A recorded event. Display it for one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// Its id. No two events have the same.
    pub id: Uuid,
    /// The hierarchy.
    pub hierarchy: HierarchyId,
    /// The run; `None` for the launch or the cancellation of a hierarchy.
    pub run: Option<RunId>,
    /// The saga; `None` for the launch of a hierarchy.
    pub handler: Option<String>,
    /// The message that it is about.
    pub message_id: Uuid,
    /// The recorded type.
    pub kind: EventKind,
    /// The recorded name of the step, or in a rollback that of its part.
    pub step: Option<String>,
    /// Its time, by the clock of the database.
    pub at: SystemTime,
    /// The identifier of the worker that wrote it.
    pub worker: Option<String>,
    /// The failure that it records.
    pub failure: Option<FailureSummary>,
}

impl RecordedEvent {
    /// An event of this kind, without all else.
    pub(crate) fn of(kind: EventKind, lineage: &Lineage) -> Self {
        Self {
            id: Uuid::nil(),
            hierarchy: lineage.root_id().into(),
            run: (lineage.ids().len() > 1).then(|| lineage.id().into()),
            handler: None,
            message_id: Uuid::nil(),
            kind,
            step: None,
            at: SystemTime::UNIX_EPOCH,
            worker: None,
            failure: None,
        }
    }
}

impl fmt::Display for RecordedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", utc(self.at), self.hierarchy, self.kind.as_str())?;
        if let (Some(handler), Some(run)) = (&self.handler, self.run) {
            write!(f, " {} ({run})", Escaped(handler))?;
        }
        self.step.as_ref().map_or(Ok(()), |step| write!(f, " {}", Escaped(step)))?;
        self.failure.as_ref().map_or(Ok(()), |failure| write!(f, ": {failure}"))
    }
}

/// A place in the record, from which a follower goes on. Its text is short and can be a part of a URL. It is valid on the
/// server that it is from, and on a physical copy of that, not after a restore from a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// The horizon of the last round.
    pub(crate) horizon: i64,
    /// What later transactions write is later than this.
    pub(crate) floor: StoredTime,
}

/// The text is no [`EventCursor`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in the record; use the text of `EventStream::cursor`")]
pub struct BadEventCursor(String);

impl EventCursor {
    /// The place of a time: before all transactions that have written later events.
    pub(crate) fn since(time: SystemTime) -> Self {
        Self { horizon: 0, floor: stored(time) }
    }
}

fn stored(time: SystemTime) -> StoredTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok();
    let since = since.and_then(|since| Duration::try_from(since).ok());
    since
        .and_then(|since| OffsetDateTime::UNIX_EPOCH.checked_add(since))
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .into()
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{:016x}{:016x}", self.horizon, self.floor.micros())
    }
}

impl FromStr for EventCursor {
    type Err = BadEventCursor;

    fn from_str(text: &str) -> Result<Self, BadEventCursor> {
        let read = || {
            let (horizon, floor) = text.strip_prefix('e')?.split_at_checked(16)?;
            let number = |text: &str| {
                let digits = text.len() == 16 && text.chars().all(|it| it.is_ascii_hexdigit());
                u64::from_str_radix(text, 16).ok().filter(|_| digits).map(u64::cast_signed)
            };
            Some(Self { horizon: number(horizon)?, floor: StoredTime::from_micros(number(floor)?) })
        };
        read().ok_or_else(|| BadEventCursor(text.chars().take(80).collect()))
    }
}

/// The events that a follower wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFilter {
    pub(crate) handler: Option<String>,
    pub(crate) hierarchy: Option<Uuid>,
}

/// The end of the record at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    /// The visible transactions, in the notation of the server.
    pub(crate) snapshot: String,
    /// The oldest open transaction.
    pub(crate) open: i64,
    /// The next transaction.
    pub(crate) next: i64,
    /// What that one and later ones write is later than this.
    pub(crate) at: OffsetDateTime,
}

/// The events that a statement reads.
#[derive(Clone, Debug)]
pub(crate) struct EventWindow {
    /// Only greater ids than this.
    pub(crate) floor: Uuid,
    /// Of this transaction and later ones,
    pub(crate) from: i64,
    /// before this one,
    pub(crate) until: i64,
    /// and visible in this snapshot.
    pub(crate) snapshot: String,
    /// Those that were read before.
    pub(crate) without: Vec<Uuid>,
    /// After this event.
    pub(crate) after: (StoredTime, Uuid),
    pub(crate) limit: usize,
}

/// An event with its transaction, and its place among those of a round.
#[derive(Debug)]
pub(crate) struct FollowedEvent {
    pub(crate) transaction: i64,
    pub(crate) at: StoredTime,
    pub(crate) event: RecordedEvent,
}

/// The events that a follower has read.
#[derive(Debug)]
pub(crate) struct Following {
    cursor: EventCursor,
    /// Times, each with the transaction that was next at that time.
    samples: VecDeque<(OffsetDateTime, i64)>,
    /// The events that were read, of transactions from the horizon on.
    remembered: BTreeMap<Uuid, i64>,
    round: Option<Round>,
}

/// A round in progress.
#[derive(Debug)]
struct Round {
    horizon: Horizon,
    window: EventWindow,
}

impl Following {
    /// From the end of the record on. The first round reads what is visible of open transactions, and is to be skipped.
    pub(crate) fn from_now(horizon: &Horizon) -> Self {
        Self::after(EventCursor { horizon: horizon.open, floor: horizon.at.into() })
    }

    /// From this place on.
    pub(crate) fn after(cursor: EventCursor) -> Self {
        Self { cursor, samples: VecDeque::new(), remembered: BTreeMap::new(), round: None }
    }

    /// The place of the last complete round.
    pub(crate) fn cursor(&self) -> EventCursor {
        self.cursor
    }

    /// The next events to read, if a round is in progress.
    pub(crate) fn window(&self) -> Option<&EventWindow> {
        self.round.as_ref().map(|round| &round.window)
    }

    /// Begins a round at this end of the record, which reads so many events at once.
    pub(crate) fn begin(&mut self, horizon: Horizon, limit: usize) {
        let is_full = self.remembered.len() >= REMEMBERED_MAX;
        let window = EventWindow {
            floor: first_id_of(self.cursor.floor.time() - AGE_MAX),
            from: self.cursor.horizon,
            until: if is_full { horizon.open } else { horizon.next },
            snapshot: horizon.snapshot.clone(),
            without: self.remembered.keys().copied().collect(),
            after: (StoredTime::from_micros(i64::MIN), Uuid::nil()),
            limit,
        };
        self.round = Some(Round { horizon, window });
    }

    /// Takes the events that were read, and ends the round if there are no more.
    pub(crate) fn take(&mut self, read: Vec<FollowedEvent>) -> Vec<RecordedEvent> {
        let Some(round) = &mut self.round else {
            return vec![];
        };
        let is_last = read.len() < round.window.limit;
        if let Some(last) = read.last() {
            round.window.after = (last.at, last.event.id);
        }
        let horizon = &round.horizon;
        let open = read.iter().filter(|read| read.transaction >= horizon.open);
        self.remembered.extend(open.map(|read| (read.event.id, read.transaction)));
        if is_last && let Some(Round { horizon, .. }) = self.round.take() {
            self.end(&horizon);
        }
        read.into_iter().map(|read| read.event).collect()
    }

    fn end(&mut self, horizon: &Horizon) {
        self.remembered.retain(|_, transaction| *transaction >= horizon.open);
        self.samples.push_back((horizon.at, horizon.next));
        // The newest time before all open transactions: older ones are not needed any more.
        while self.samples.len() > 1 && self.samples[1].1 <= horizon.open {
            self.samples.pop_front();
        }
        let floor = self.samples.front().filter(|(_, next)| *next <= horizon.open).map(|(at, _)| *at);
        self.cursor =
            EventCursor { horizon: horizon.open, floor: floor.map_or(self.cursor.floor, StoredTime::from) };
        if self.samples.len() > SAMPLES_MAX {
            // A long transaction is open. Every other time will do.
            let mut nth = 0;
            self.samples.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
    }
}

/// The least id of this time.
pub(crate) fn first_id_of(time: OffsetDateTime) -> Uuid {
    let millis = u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    Builder::from_u128(u128::from(millis) << 80).into_uuid()
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn time(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::seconds(seconds)
    }

    fn horizon(open: i64, next: i64, seconds: i64) -> Horizon {
        Horizon { snapshot: format!("{open}:{next}:"), open, next, at: time(seconds) }
    }

    fn event(id: u128, transaction: i64) -> FollowedEvent {
        let id = Uuid::from_u128(id);
        let event = RecordedEvent { id, ..RecordedEvent::of(EventKind::Emitted, &Lineage::root(id)) };
        FollowedEvent { transaction, at: time(0).into(), event }
    }

    #[test]
    fn events_of_open_transactions_are_remembered_until_the_horizon_passes_them() {
        let mut following = Following::from_now(&horizon(10, 10, 0));
        following.begin(horizon(12, 20, 1), 100);
        assert_eq!(following.window().map(|window| (window.from, window.until)), Some((10, 20)));
        assert_eq!(following.take(vec![event(1, 11), event(2, 15)]).len(), 2);
        following.begin(horizon(12, 30, 2), 100);
        assert_eq!(following.window().map(|window| window.without.clone()), Some(vec![Uuid::from_u128(2)]));
        following.take(vec![event(3, 12)]);
        following.begin(horizon(30, 30, 3), 100);
        assert_eq!(following.window().map(|window| window.without.len()), Some(2));
        following.take(vec![]);
        following.begin(horizon(31, 31, 4), 100);
        assert_eq!(following.window().map(|window| window.without.len()), Some(0));
    }

    #[test]
    fn floor_is_a_time_before_all_open_transactions() {
        let mut following = Following::from_now(&horizon(10, 10, 0));
        let mut round = |open, next, at| {
            following.begin(horizon(open, next, at), 100);
            following.take(vec![]);
            following.cursor()
        };
        assert_eq!(round(10, 20, 1).floor, time(0).into(), "10 may have written since the beginning");
        assert_eq!(round(20, 30, 2).floor, time(1).into(), "20 began after the first round");
        assert_eq!(round(25, 40, 3).floor, time(1).into());
        assert_eq!(round(40, 40, 4).floor, time(4).into());
    }

    #[test]
    fn long_transaction_leaves_few_times_and_the_right_one() {
        let mut following = Following::from_now(&horizon(10, 10, 0));
        for second in 1..10_000 {
            following.begin(horizon(10, 10 + second, second), 100);
            following.take(vec![]);
        }
        assert!(following.samples.len() <= SAMPLES_MAX);
        assert_eq!(following.cursor().floor, time(0).into());
        following.begin(horizon(5_000, 20_000, 10_000), 100);
        following.take(vec![]);
        let floor = following.cursor().floor;
        assert!(floor <= time(4_990).into() && floor > time(0).into(), "{floor:?}");
    }

    #[test]
    fn cursor_is_read_from_its_text() {
        let cursor = EventCursor { horizon: 7, floor: time(0).into() };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "e", "e0", "x00000000000000070000000000000007", "e0000000000000007+000000000000007"]
        {
            assert!(text.parse::<EventCursor>().is_err(), "{text}");
        }
    }
}
