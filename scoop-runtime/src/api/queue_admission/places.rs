//! The places that this program holds in the queue of a saga: a function of what it asks and is answered.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::store::{LEASE, Lease, LeaseRequest, QUEUE_MAX};
use crate::util::ids;

/// For how long a place is used after the request for it was sent. The rest of the lease is for the launch to be committed.
const USABLE: Duration = Duration::from_secs(3);

/// For how long a message that may be launched has a place, unless it is seen before. Its transaction may be rolled back.
const IN_DOUBT: Duration = Duration::from_secs(10);

/// For how long a program remembers that the queue is full: about as long as a count of it takes, within these bounds.
const FULL_MIN: Duration = Duration::from_millis(5);
const FULL_MAX: Duration = Duration::from_millis(100);

/// The places of this program in one queue.
#[derive(Debug)]
pub(super) struct Places {
    /// The name under which it holds them. A new one after a request without an answer: that lease may still be written.
    holder: Uuid,
    /// Whether a request has no answer yet.
    is_asked: bool,
    /// Those that no launch uses.
    free: usize,
    /// Those of launches under way.
    in_use: usize,
    /// The messages that may be launched or not, and until when each has a place.
    in_doubt: Vec<(Instant, Uuid)>,
    /// How many places the launches need that wait for the database.
    needed: usize,
    /// Until when free places may be used.
    usable_until: Option<Instant>,
    full_until: Option<Instant>,
    /// The limit, as far as it is known.
    most: u32,
    is_scarce: bool,
    /// Whether unused places will be given back.
    pub(super) is_returning: bool,
}

/// What becomes of a request for places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// There was no room a moment ago.
    Full,
    /// The database has to be asked.
    Unknown,
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            holder: ids::now_v7(),
            is_asked: false,
            free: 0,
            in_use: 0,
            in_doubt: vec![],
            needed: 0,
            usable_until: None,
            full_until: None,
            most: 0,
            is_scarce: false,
            is_returning: false,
        }
    }

    /// The limit, as far as it is known.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Takes so many places for a launch, if they are there.
    pub(super) fn take(&mut self, count: usize, now: Instant) -> Taken {
        let taken = self.would_take(count, now);
        if taken == Taken::Yes {
            self.free -= count;
            self.in_use += count;
        }
        taken
    }

    /// What a launch that needs so many places would get.
    pub(super) fn would_take(&self, count: usize, now: Instant) -> Taken {
        let is_ahead = |until: Option<Instant>| until.is_some_and(|until| now < until);
        if self.free >= count && is_ahead(self.usable_until) {
            Taken::Yes
        } else if is_ahead(self.full_until) {
            Taken::Full
        } else {
            Taken::Unknown
        }
    }

    /// A launch that needs so many places waits for the answer of the database.
    pub(super) fn wait_for(&mut self, count: usize) {
        self.needed += count;
    }

    /// Such a launch has its answer.
    pub(super) fn waited_for(&mut self, count: usize) {
        self.needed -= count;
    }

    /// What to ask of the database. Places that were leased too long ago are not used any more.
    pub(super) fn request(&mut self, saga: &str, now: Instant) -> LeaseRequest {
        if std::mem::replace(&mut self.is_asked, true) {
            // The places stay with the former holder, too, until its lease ends.
            self.holder = ids::now_v7();
        }
        if self.usable_until.is_none_or(|until| until <= now) {
            self.free = 0;
        }
        self.in_doubt.retain(|(until, _)| now < *until);
        let most = QUEUE_MAX as usize;
        LeaseRequest {
            saga: saga.to_owned(),
            holder: self.holder,
            in_use: (self.free + self.in_use).min(most),
            in_doubt: self.in_doubt.iter().take(most).map(|(_, message)| *message).collect(),
            needed: self.needed.min(most),
        }
    }

    /// Takes over the answer to a request that was sent at this time.
    pub(super) fn leased(&mut self, asked: &LeaseRequest, lease: &Lease, sent: Instant, now: Instant) {
        self.is_asked = false;
        self.free += lease.granted;
        let launched: BTreeSet<_> = lease.launched.iter().collect();
        self.in_doubt.retain(|(_, message)| !launched.contains(message));
        self.usable_until = Some(sent + USABLE);
        (self.most, self.is_scarce) = (lease.most, lease.is_scarce);
        let full = Duration::from_micros(u64::from(lease.most) * 10).clamp(FULL_MIN, FULL_MAX);
        self.full_until = (lease.granted < asked.needed).then(|| now + full);
    }

    /// A launch is over: it is stored, so that its runs count, or it will never be.
    pub(super) fn end(&mut self, count: usize) {
        self.in_use -= count;
    }

    /// A launch did not begin: its places can be used by another one.
    pub(super) fn put_back(&mut self, count: usize) {
        self.in_use -= count;
        self.free += count;
    }

    /// It is not known yet whether the launch of these messages is stored.
    pub(super) fn doubt(&mut self, messages: &[Uuid], now: Instant) {
        self.in_use -= messages.len();
        self.in_doubt.extend(messages.iter().map(|message| (now + IN_DOUBT, *message)));
    }

    /// Whether this program holds places that nothing uses, while the queue is nearly full.
    pub(super) fn has_to_return(&self) -> bool {
        let is_idle = self.in_use == 0 && self.needed == 0 && self.in_doubt.is_empty();
        is_idle && self.is_scarce && self.usable_until.is_some()
    }

    /// Whether a further launch could use a place.
    pub(super) fn has_free(&self) -> bool {
        self.free > 0
    }

    /// Gives all places back: what to send to the database. Later leases have another holder.
    pub(super) fn give_back(&mut self, saga: &str) -> LeaseRequest {
        let holder = std::mem::replace(&mut self.holder, ids::now_v7());
        (self.free, self.usable_until) = (0, None);
        LeaseRequest { saga: saga.to_owned(), holder, in_use: 0, in_doubt: vec![], needed: 0 }
    }
}

/// The whole lease is longer than the time for which it is used.
const _: () = assert!(USABLE.as_millis() < LEASE.as_millis());

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(granted: usize) -> Lease {
        Lease { most: 100, granted, is_scarce: true, launched: vec![] }
    }

    /// Places of which so many were needed and granted at this time.
    fn leased(needed: usize, granted: usize, now: Instant) -> Places {
        let mut places = Places::new();
        ask(&mut places, needed, granted, now);
        places
    }

    fn ask(places: &mut Places, needed: usize, granted: usize, now: Instant) -> LeaseRequest {
        places.wait_for(needed);
        let asked = places.request("s", now);
        places.leased(&asked, &lease(granted), now, now);
        places.waited_for(needed);
        asked
    }

    #[test]
    fn place_is_used_once_and_asked_for_again() {
        let now = Instant::now();
        let mut places = leased(1, 2, now);
        assert_eq!([(); 3].map(|()| places.take(1, now)), [Taken::Yes, Taken::Yes, Taken::Unknown]);
        places.end(1);
        let asked = ask(&mut places, 3, 3, now);
        assert_eq!((asked.in_use, asked.needed), (1, 3), "one launch is under way");
        assert_eq!(places.take(3, now), Taken::Yes);
    }

    #[test]
    fn place_is_not_used_at_the_end_of_its_lease_and_does_not_count_then() {
        let now = Instant::now();
        let mut places = leased(5, 5, now);
        assert_eq!(places.take(1, now), Taken::Yes);
        let late = now + USABLE;
        assert_eq!(places.take(1, late), Taken::Unknown);
        assert_eq!(ask(&mut places, 1, 1, late).in_use, 1, "that of the launch under way");
    }

    #[test]
    fn full_queue_is_remembered_for_a_moment() {
        let now = Instant::now();
        let mut places = leased(3, 2, now);
        assert_eq!(places.take(3, now), Taken::Full);
        assert_eq!(places.take(2, now), Taken::Yes, "there is room for a smaller launch");
        assert_eq!(places.take(1, now), Taken::Full);
        assert_eq!(places.take(1, now + FULL_MAX), Taken::Unknown);
    }

    #[test]
    fn message_in_doubt_has_a_place_until_it_is_seen() {
        let now = Instant::now();
        let mut places = leased(2, 2, now);
        let messages = [Uuid::from_u128(1), Uuid::from_u128(2)];
        assert_eq!(places.take(2, now), Taken::Yes);
        places.doubt(&messages, now);
        assert!(!places.has_to_return());
        places.wait_for(1);
        let asked = places.request("s", now);
        assert_eq!((asked.in_use, &*asked.in_doubt), (0, &messages[..]));
        places.leased(&asked, &Lease { launched: vec![messages[0]], ..lease(1) }, now, now);
        assert_eq!(places.request("s", now).in_doubt, [messages[1]]);
        assert!(places.request("s", now + IN_DOUBT).in_doubt.is_empty());
    }

    #[test]
    fn unused_places_are_given_back_while_the_queue_is_nearly_full() {
        let now = Instant::now();
        let mut places = leased(1, 3, now);
        assert_eq!(places.take(1, now), Taken::Yes);
        assert!(!places.has_to_return());
        places.end(1);
        assert!(places.has_to_return() && places.has_free());
        let (holder, returned) = (places.holder, places.give_back("s"));
        assert_eq!((returned.holder, returned.in_use, returned.needed), (holder, 0, 0));
        assert_ne!(places.holder, holder, "a late return is not one of later places");
        assert!(!places.has_to_return());
        assert_eq!(places.take(1, now), Taken::Unknown);
    }

    #[test]
    fn request_without_an_answer_is_repeated_by_another_holder() {
        let mut places = leased(2, 2, Instant::now());
        let first = places.request("s", Instant::now());
        assert_eq!(first.holder, places.holder);
        let second = places.request("s", Instant::now());
        assert_ne!(second.holder, first.holder, "the first one may still be carried out");
        assert_eq!(second.in_use, 2);
        places.leased(&second, &lease(0), Instant::now(), Instant::now());
        assert_eq!(places.request("s", Instant::now()).holder, second.holder);
    }
}
