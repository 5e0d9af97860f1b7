//! The events that a follower has read, so that it reads each of the others once.
//!
//! Transactions commit in any order, so neither ids nor times of events rise in the order in which they become visible.
//! What does rise is the oldest transaction that is still open, the horizon: all before it have ended, and what they wrote
//! can be read. A round reads what all transactions from the former horizon on have written, and leaves out what it has
//! read of them before. It has to remember only those events whose transactions are not before its own horizon.
//!
//! Only the ids of events have an index that rises about with time. So a follower also remembers some times with the
//! transactions that had begun by then: what transactions from the horizon on write is later than one of these times.
//!
//! A round is read page by page in the order of ids, so that each row is read once. It is returned in the order of times:
//! [`HELD_MAX`] events are held back, among which the next one is the earliest. A cursor within a round names what of it was
//! returned, as far as it is of transactions that had ended when the round began: their events are the same when it is
//! read again. Those of later transactions come again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use scoop_core::{Escaped, EventKind};
use serde::Serialize;
use time::{Duration, OffsetDateTime};
use uuid::{Builder, Uuid};

use scoop_runtime::internal::{StoredTime, json};
use scoop_runtime::shown::utc;
use scoop_runtime::{HierarchyId, RunId};

use crate::runs::FailureSummary;

/// The longest time by which the id of an event may be older than its row: the lag of the clock of the program that made
/// the id, and the time until the row was written.
const AGE_MAX: Duration = Duration::MINUTE;

/// The number of events that a follower remembers, and up to a page more. Then it waits for the oldest open transaction.
const REMEMBERED_MAX: usize = 10_000;

/// The number of events that are held back, to return them in the order of their times.
const UNRETURNED_MAX: usize = 10_000;

/// The number of remembered times.
const SAMPLES_MAX: usize = 64;

/// A recorded event. Display it for one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    #[serde(rename = "message")]
    pub message_id: Uuid,
    /// The recorded type.
    pub kind: EventKind,
    /// The recorded name of the step, or in a rollback that of its part.
    pub step: Option<String>,
    /// Its time, by the clock of the database.
    #[serde(serialize_with = "json::time")]
    pub at: SystemTime,
    /// The identifier of the worker that wrote it.
    pub worker: Option<String>,
    /// The failure that it records.
    pub failure: Option<FailureSummary>,
}

impl RecordedEvent {
    /// An event of this kind, without all else.
    pub(crate) fn of(kind: EventKind, hierarchy: Uuid, run: Option<Uuid>) -> Self {
        Self {
            id: Uuid::nil(),
            hierarchy: hierarchy.into(),
            run: run.map(Into::into),
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

/// A place in the record, from which a follower goes on. Its text has at most 161 letters and digits, so that it can be a part
/// of a URL. It is valid on the server that it is from, and on a physical copy of that, not after a restore from a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// The horizon of the last complete round.
    pub(crate) horizon: i64,
    /// What that transaction and later ones write is later than this.
    pub(crate) floor: StoredTime,
    /// What was returned of the round after it.
    within: Option<Returned>,
}

/// The events of a round that were returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Returned {
    /// Of the transactions before this one, which had all ended when the round began,
    until: i64,
    /// the events up to this id,
    after: Uuid,
    /// and of those up to this id
    read: Uuid,
    /// the ones before this place.
    next: (StoredTime, Uuid),
}

impl Returned {
    fn contains(&self, read: &FollowedEvent) -> bool {
        let id = read.event.id;
        id <= self.after || id <= self.read && (read.at, id) < self.next
    }
}

/// The text is no [`EventCursor`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in the record; use the text of `EventStream::cursor`")]
pub struct BadEventCursor(String);

impl EventCursor {
    /// The place of a time: before all transactions that have written later events.
    pub(crate) fn since(time: SystemTime) -> Self {
        Self { horizon: 0, floor: stored(time), within: None }
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
        write!(f, "e{:016x}{:016x}", self.horizon, self.floor.micros())?;
        let Some(Returned { until, after, read, next: (at, id) }) = self.within else { return Ok(()) };
        let (after, read, id) = (after.simple(), read.simple(), id.simple());
        write!(f, "{until:016x}{after}{read}{:016x}{id}", at.micros())
    }
}

impl FromStr for EventCursor {
    type Err = BadEventCursor;

    fn from_str(text: &str) -> Result<Self, BadEventCursor> {
        let read = || {
            let mut digits =
                text.strip_prefix('e').filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
            let mut number = |length| {
                let (number, rest) = digits.split_at_checked(length)?;
                digits = rest;
                u128::from_str_radix(number, 16).ok()
            };
            let (horizon, floor) = (signed(number(16)?)?, signed(number(16)?)?);
            let within = match number(16) {
                Some(until) => Some(Returned {
                    until: signed(until)?,
                    after: Uuid::from_u128(number(32)?),
                    read: Uuid::from_u128(number(32)?),
                    next: (StoredTime::from_micros(signed(number(16)?)?), Uuid::from_u128(number(32)?)),
                }),
                None => None,
            };
            digits.is_empty().then_some(Self { horizon, floor: StoredTime::from_micros(floor), within })
        };
        read().ok_or_else(|| BadEventCursor(text.chars().take(80).collect()))
    }
}

/// The number with these 64 bits.
fn signed(bits: u128) -> Option<i64> {
    u64::try_from(bits).ok().map(u64::cast_signed)
}

/// The events that a follower wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFilter {
    pub(crate) handler: Option<String>,
    pub(crate) hierarchy: Option<Uuid>,
    /// The failures of the events are not read.
    pub(crate) without_failures: bool,
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
    /// Only ids of this time and later ones: the least of them.
    pub(crate) floor: Uuid,
    /// Of this transaction and later ones,
    pub(crate) from: i64,
    /// before this one,
    pub(crate) until: i64,
    /// and visible in this snapshot.
    pub(crate) snapshot: String,
    /// Those that were read before.
    pub(crate) without: Vec<Uuid>,
    /// Only greater ids than this.
    pub(crate) after: Uuid,
    pub(crate) limit: usize,
}

impl EventWindow {
    /// Whether no transaction is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.from >= self.until
    }
}

/// Events of a window, in the order of their ids.
#[derive(Debug)]
pub(crate) struct FollowedPage {
    pub(crate) events: Vec<FollowedEvent>,
    /// There are no more.
    pub(crate) is_last: bool,
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
    /// The events of the first complete round were there before.
    skips: bool,
    /// It ends with the first complete round: no later one would repeat what was read, so none of it is remembered.
    is_once: bool,
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
    /// What an earlier stream has returned. Then the round ends with the transactions of which that is known.
    resumed: Option<Returned>,
    /// The events that were read and not returned yet, in the order of their times; and their ids.
    left: BTreeMap<(StoredTime, Uuid), RecordedEvent>,
    left_ids: BTreeSet<Uuid>,
    /// All of it is read.
    is_read: bool,
    /// An event of it was returned.
    has_returned: bool,
}

impl Round {
    /// The next event to return, if no other can come before it.
    fn next(&mut self) -> Option<RecordedEvent> {
        let has_passed = self.resumed.is_none_or(|returned| returned.read <= self.window.after);
        if !self.is_read && (self.left.len() <= UNRETURNED_MAX || !has_passed) {
            return None;
        }
        let ((_, id), event) = self.left.pop_first()?;
        self.left_ids.remove(&id);
        self.has_returned = true;
        Some(event)
    }

    /// What was returned; if nothing, what an earlier stream has.
    fn returned(&self) -> Option<Returned> {
        if !self.has_returned {
            return self.resumed;
        }
        let read = self.window.after;
        let after = self.left_ids.first().map_or(read, |id| Uuid::from_u128(id.as_u128().saturating_sub(1)));
        let next = self.left.first_key_value().map_or((StoredTime::from_micros(i64::MIN), read), |it| *it.0);
        Some(Returned { until: self.horizon.open.min(self.window.until), after, read, next })
    }
}

impl Following {
    /// From the end of the record on. What its open transactions write is later than `oldest`.
    pub(crate) fn from_now(horizon: &Horizon, oldest: OffsetDateTime) -> Self {
        let cursor = EventCursor { horizon: horizon.open, floor: oldest.into(), within: None };
        // The first round reads what is visible of open transactions.
        Self { skips: true, ..Self::after(cursor) }
    }

    /// From this place on.
    pub(crate) fn after(cursor: EventCursor) -> Self {
        let (samples, remembered) = (VecDeque::new(), BTreeMap::new());
        Self { cursor, skips: false, is_once: false, samples, remembered, round: None }
    }

    /// From this place on, in one complete round.
    pub(crate) fn once_after(cursor: EventCursor) -> Self {
        Self { is_once: true, ..Self::after(cursor) }
    }

    /// The place after the events that were returned.
    pub(crate) fn cursor(&self) -> EventCursor {
        let within = self.round.as_ref().map_or(self.cursor.within, Round::returned);
        EventCursor { within, ..self.cursor }
    }

    /// The next events to read, if a round is in progress that is not read completely.
    pub(crate) fn window(&self) -> Option<&EventWindow> {
        self.round.as_ref().filter(|round| !round.is_read).map(|round| &round.window)
    }

    /// Begins a round at this end of the record, which reads so many events at once.
    pub(crate) fn begin(&mut self, horizon: Horizon, limit: usize) {
        let resumed = self.cursor.within;
        let is_full = self.remembered.len() >= REMEMBERED_MAX;
        let window = EventWindow {
            floor: first_id_of(self.cursor.floor.time() - AGE_MAX),
            from: self.cursor.horizon,
            until: match resumed {
                Some(returned) => returned.until.min(horizon.open),
                None if is_full => horizon.open,
                None => horizon.next,
            },
            snapshot: horizon.snapshot.clone(),
            without: self.remembered.keys().copied().collect(),
            after: resumed.map_or(Uuid::nil(), |returned| returned.after),
            limit,
        };
        self.round = Some(Round {
            horizon,
            window,
            resumed,
            left: BTreeMap::new(),
            left_ids: BTreeSet::new(),
            is_read: false,
            has_returned: false,
        });
    }

    /// Takes the events that were read. Returns whether all are read up to the horizon.
    pub(crate) fn take(&mut self, page: FollowedPage) -> bool {
        let Some(round) = &mut self.round else {
            return false;
        };
        if let Some(last) = page.events.last() {
            round.window.after = last.event.id;
        }
        for read in page.events {
            if !self.is_once && read.transaction >= round.horizon.open {
                self.remembered.insert(read.event.id, read.transaction);
            }
            if !self.skips && !round.resumed.is_some_and(|returned| returned.contains(&read)) {
                round.left_ids.insert(read.event.id);
                round.left.insert((read.at, read.event.id), read.event);
            }
        }
        if self.remembered.len() >= REMEMBERED_MAX {
            // The others of these transactions are read after their ends.
            round.window.until = round.window.until.min(round.horizon.open);
        }
        round.is_read = page.is_last;
        let is_complete = round.is_read && round.resumed.is_none();
        self.skips &= !is_complete;
        self.end_if_returned();
        is_complete
    }

    /// The next event to return; `None` if more have to be read before.
    pub(crate) fn next(&mut self) -> Option<RecordedEvent> {
        let event = self.round.as_mut()?.next();
        self.end_if_returned();
        event
    }

    /// Ends the round if all of it is read and returned.
    fn end_if_returned(&mut self) {
        let Some(round) = self.round.take_if(|round| round.is_read && round.left.is_empty()) else { return };
        if round.resumed.is_some() {
            self.cursor = EventCursor { horizon: round.window.until, within: None, ..self.cursor };
        } else {
            self.end(&round.horizon);
        }
    }

    fn end(&mut self, horizon: &Horizon) {
        self.remembered.retain(|_, transaction| *transaction >= horizon.open);
        self.samples.push_back((horizon.at, horizon.next));
        // The newest time before all open transactions: older ones are not needed any more.
        while self.samples.len() > 1 && self.samples[1].1 <= horizon.open {
            self.samples.pop_front();
        }
        let floor = self.samples.front().filter(|(_, next)| *next <= horizon.open).map(|(at, _)| *at);
        let floor = floor.map_or(self.cursor.floor, StoredTime::from);
        self.cursor = EventCursor { horizon: horizon.open, floor, within: None };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::seconds(seconds)
    }

    fn horizon(open: i64, next: i64, seconds: i64) -> Horizon {
        Horizon { snapshot: format!("{open}:{next}:"), open, next, at: time(seconds) }
    }

    fn event(id: u128, transaction: i64) -> FollowedEvent {
        event_at(id, transaction, 0)
    }

    fn event_at(id: u128, transaction: i64, seconds: i64) -> FollowedEvent {
        let id = Uuid::from_u128(id);
        let event = RecordedEvent { id, ..RecordedEvent::of(EventKind::Emitted, id, None) };
        FollowedEvent { transaction, at: time(seconds).into(), event }
    }

    fn last(events: Vec<FollowedEvent>) -> FollowedPage {
        FollowedPage { events, is_last: true }
    }

    /// The ids of up to so many next events.
    fn returned(following: &mut Following, count: usize) -> Vec<u128> {
        std::iter::from_fn(|| following.next()).take(count).map(|event| event.id.as_u128()).collect()
    }

    /// The page that a store returns of these events: ids in their order, transactions and times.
    fn page(window: &EventWindow, events: &[(u128, i64, i64)]) -> FollowedPage {
        let read = events.iter().filter(|(id, transaction, _)| {
            *id > window.after.as_u128()
                && (window.from..window.until).contains(transaction)
                && window.without.binary_search(&Uuid::from_u128(*id)).is_err()
        });
        let read: Vec<_> = read.map(|(id, of, at)| event_at(*id, *of, *at)).take(window.limit).collect();
        let is_last = read.len() < window.limit;
        FollowedPage { events: read, is_last }
    }

    /// Reads events until the next one is known, or all are read.
    fn read(following: &mut Following, horizon: &Horizon, limit: usize, events: &[(u128, i64, i64)]) -> bool {
        if following.window().is_none() {
            following.begin(horizon.clone(), limit);
        }
        let page = following.window().map(|window| page(window, events));
        page.is_some_and(|page| following.take(page))
    }

    /// The next events after a place, at most so many, and the place after them.
    fn some_after(
        place: EventCursor,
        count: usize,
        horizon: &Horizon,
        limit: usize,
        events: &[(u128, i64, i64)],
    ) -> (Vec<u128>, EventCursor) {
        let mut following = Following::after(place);
        let (mut some, mut is_complete) = (vec![], false);
        while some.len() < count {
            match following.next() {
                Some(event) => some.push(event.id.as_u128()),
                None if is_complete => break,
                None => is_complete = read(&mut following, horizon, limit, events),
            }
        }
        (some, following.cursor().to_string().parse().unwrap())
    }

    /// The id of the event of this number, by a clock that shows this time.
    fn id(clock: i64, number: i64) -> u128 {
        u128::try_from((clock + 1_000) * 100_000 + number).unwrap()
    }

    fn from_the_beginning() -> EventCursor {
        EventCursor { horizon: 0, floor: time(0).into(), within: None }
    }

    #[test]
    fn cursor_leaves_out_no_event_that_was_not_returned() {
        let events = (1..=50).map(|n| (n, 5, 60 - i64::try_from(n).unwrap())).collect::<Vec<_>>();
        let horizon = horizon(10, 10, 100);
        for count in 1..50 {
            let (mut read, place) = some_after(from_the_beginning(), count, &horizon, 100, &events);
            let (rest, _) = some_after(place, 100, &horizon, 100, &events);
            read.extend(rest);
            assert_eq!(read, (1..=50).rev().collect::<Vec<_>>(), "after {count} events");
        }
    }

    /// Also if the clocks of some programs differ, so that ids have another order than times.
    #[test]
    fn streams_of_few_events_each_go_through_a_round_of_many() {
        let number = i64::try_from(UNRETURNED_MAX).unwrap() * 3 / 2;
        let skewed = |n: i64| n + [0, 900, -400][usize::try_from(n % 3).unwrap()];
        let mut events: Vec<_> = (1..=number).map(|n| (id(skewed(n), n), 5, n)).collect();
        events.sort_unstable();
        let (horizon, mut place, mut seen) = (horizon(10, 10, 100), from_the_beginning(), BTreeSet::new());
        let mut count = 0;
        while seen.len() < events.len() {
            let (some, next) = some_after(place, 1_000, &horizon, 300, &events);
            count += some.len();
            let before = seen.len();
            seen.extend(some);
            assert!(seen.len() > before, "nothing new after {before} events");
            place = next;
        }
        assert_eq!(count, events.len(), "nothing is repeated");
    }

    #[test]
    fn events_of_transactions_from_the_horizon_on_come_again_after_a_place_within_a_round() {
        let events = [(11, 5, 1), (12, 12, 2), (13, 5, 3), (14, 5, 4), (15, 13, 5)];
        let (read, place) = some_after(from_the_beginning(), 3, &horizon(12, 20, 100), 100, &events);
        assert_eq!(read, [11, 12, 13]);
        // What commits meanwhile may have an id before the place.
        let later = [&[(1, 12, 0)], &events[..]].concat();
        let (read, _) = some_after(place, 100, &horizon(20, 20, 101), 100, &later);
        assert_eq!(read, [14, 1, 12, 15]);
    }

    #[test]
    fn events_are_returned_in_the_order_of_times_over_pages() {
        let number = i64::try_from(UNRETURNED_MAX).unwrap() * 3;
        // The clock of every other program is ahead.
        let id = |n: i64| id(n + n % 2 * 4_000, n);
        let mut events: Vec<_> = (1..=number).map(|n| (id(n), 5, n)).collect();
        events.sort_unstable();
        let (read, place) =
            some_after(from_the_beginning(), usize::MAX, &horizon(10, 10, 100), 1_000, &events);
        assert_eq!(read, (1..=number).map(id).collect::<Vec<_>>());
        assert_eq!(place.within, None);
    }

    #[test]
    fn events_of_open_transactions_are_remembered_until_the_horizon_passes_them() {
        let mut following = Following::after(EventCursor { horizon: 10, ..from_the_beginning() });
        following.begin(horizon(12, 20, 1), 100);
        assert_eq!(following.window().map(|window| (window.from, window.until)), Some((10, 20)));
        assert!(following.take(last(vec![event(1, 11), event(2, 15)])));
        assert_eq!(returned(&mut following, 9), [1, 2]);
        following.begin(horizon(12, 30, 2), 100);
        assert_eq!(following.window().map(|window| window.without.clone()), Some(vec![Uuid::from_u128(2)]));
        following.take(last(vec![event(3, 12)]));
        assert_eq!(returned(&mut following, 9), [3]);
        following.begin(horizon(30, 30, 3), 100);
        assert_eq!(following.window().map(|window| window.without.len()), Some(2));
        following.take(last(vec![]));
        following.begin(horizon(31, 31, 4), 100);
        assert_eq!(following.window().map(|window| window.without.len()), Some(0));
    }

    #[test]
    fn events_of_open_transactions_beyond_those_remembered_come_after_their_ends() {
        let number = REMEMBERED_MAX * 2;
        let events: Vec<_> = (1..=number).map(|n| (u128::try_from(n).unwrap(), 12, 0)).collect();
        let (mut following, mut seen) = (Following::after(from_the_beginning()), vec![]);
        for horizon in [horizon(11, 20, 1), horizon(11, 30, 2), horizon(20, 40, 3)] {
            while !read(&mut following, &horizon, 1_000, &events) {
                let remembered = following.remembered.len();
                assert!(remembered < REMEMBERED_MAX + 1_000, "{remembered} events are remembered");
            }
            seen.extend(returned(&mut following, usize::MAX));
        }
        assert_eq!(seen, events.iter().map(|event| event.0).collect::<Vec<_>>());
    }

    #[test]
    fn single_round_has_all_events_of_open_transactions() {
        let events: Vec<_> = (1..=2 * REMEMBERED_MAX).map(|n| (u128::try_from(n).unwrap(), 12, 0)).collect();
        let (mut following, mut seen) = (Following::once_after(from_the_beginning()), vec![]);
        while !read(&mut following, &horizon(11, 20, 1), 1_000, &events) {
            seen.extend(returned(&mut following, usize::MAX));
        }
        seen.extend(returned(&mut following, usize::MAX));
        assert_eq!(seen, events.iter().map(|event| event.0).collect::<Vec<_>>());
        assert!(following.remembered.is_empty());
    }

    #[test]
    fn window_is_empty_while_the_oldest_transaction_stays_open_after_too_many_events() {
        let mut following = Following::after(EventCursor { horizon: 11, ..from_the_beginning() });
        following.begin(horizon(11, 20, 1), REMEMBERED_MAX);
        let events = (1..=REMEMBERED_MAX).map(|n| event(u128::try_from(n).unwrap(), 12)).collect();
        assert!(!following.take(FollowedPage { events, is_last: false }));
        assert!(following.window().is_some_and(EventWindow::is_empty), "for the rest of the round");
        assert!(following.take(last(vec![])));
        assert_eq!(returned(&mut following, usize::MAX).len(), REMEMBERED_MAX);
        following.begin(horizon(11, 30, 2), REMEMBERED_MAX);
        assert!(following.window().is_some_and(EventWindow::is_empty));
        assert!(following.take(last(vec![])));
        following.begin(horizon(13, 30, 3), REMEMBERED_MAX);
        assert!(following.window().is_some_and(|window| !window.is_empty()));
    }

    #[test]
    fn stream_from_now_reads_ids_since_the_oldest_open_transaction() {
        let mut following = Following::from_now(&horizon(10, 20, 1_000), time(0));
        for second in 1_000..1_003 {
            following.begin(horizon(10, 20, second), 100);
            let floor = following.window().map(|window| window.floor);
            assert_eq!(floor, Some(first_id_of(time(0) - AGE_MAX)));
            following.take(last(vec![]));
            assert_eq!(following.cursor().floor, time(0).into(), "so does a stream from its place");
        }
    }

    #[test]
    fn events_that_were_there_before_are_skipped() {
        let mut following = Following::from_now(&horizon(10, 20, 0), time(0));
        following.begin(horizon(10, 20, 0), 1);
        assert!(!following.take(FollowedPage { events: vec![event(1, 12)], is_last: false }));
        assert!(following.take(last(vec![event(2, 13)])));
        following.begin(horizon(10, 20, 0), 1);
        assert_eq!(following.window().map(|window| window.without.len()), Some(2));
        assert!(following.take(last(vec![event(3, 12)])));
        assert_eq!(returned(&mut following, 9), [3]);
    }

    #[test]
    fn floor_is_a_time_before_all_open_transactions() {
        let mut following = Following::from_now(&horizon(10, 10, 0), time(0));
        let mut round = |open, next, at| {
            following.begin(horizon(open, next, at), 100);
            following.take(last(vec![]));
            following.cursor()
        };
        assert_eq!(round(10, 20, 1).floor, time(0).into(), "10 may have written since the beginning");
        assert_eq!(round(20, 30, 2).floor, time(1).into(), "20 began after the first round");
        assert_eq!(round(25, 40, 3).floor, time(1).into());
        assert_eq!(round(40, 40, 4).floor, time(4).into());
    }

    #[test]
    fn long_transaction_leaves_few_times_and_the_right_one() {
        let mut following = Following::from_now(&horizon(10, 10, 0), time(0));
        for second in 1..10_000 {
            following.begin(horizon(10, 10 + second, second), 100);
            following.take(last(vec![]));
        }
        assert!(following.samples.len() <= SAMPLES_MAX);
        assert_eq!(following.cursor().floor, time(0).into());
        following.begin(horizon(5_000, 20_000, 10_000), 100);
        following.take(last(vec![]));
        let floor = following.cursor().floor;
        assert!(floor <= time(4_990).into() && floor > time(0).into(), "{floor:?}");
    }

    #[test]
    fn cursor_is_read_from_its_text() {
        let cursor = EventCursor { horizon: 7, ..from_the_beginning() };
        let within = Returned {
            until: 9,
            after: Uuid::from_u128(1),
            read: Uuid::from_u128(u128::MAX),
            next: (StoredTime::from_micros(-1), Uuid::from_u128(3)),
        };
        for cursor in [cursor, EventCursor { within: Some(within), ..cursor }] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
            assert!(cursor.to_string().len() <= 161);
            assert!(format!("{cursor}0").parse::<EventCursor>().is_err());
        }
        for text in ["", "e", "e0", "x00000000000000070000000000000007", "e0000000000000007+000000000000007"]
        {
            assert!(text.parse::<EventCursor>().is_err(), "{text}");
        }
    }
}
