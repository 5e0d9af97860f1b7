//! Properties of deadlines: the earliest of several counts, and all are kept.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use scoop_core::{Context, Deadline, DeadlineKind, Direction};
use time::{Duration, OffsetDateTime, UtcOffset};

const KINDS: [DeadlineKind; 3] = [DeadlineKind::HappyPath, DeadlineKind::Rollback, DeadlineKind::Absolute];

/// Few instants, so that some coincide, in several notations.
fn deadline() -> impl Strategy<Value = Deadline> {
    let seconds = prop_oneof![1_700_000_000i64..1_700_000_005, -62_135_596_800i64..=253_402_214_400];
    (seconds, 0..2_000_000_000i64, -20..=20i8, "[a-c]").prop_map(|(seconds, nanos, hours, source)| {
        let at = OffsetDateTime::from_unix_timestamp(seconds).expect("a year with four digits");
        let offset = UtcOffset::from_hms(hours, 0, 0).expect("hours of a day");
        let at = at.checked_add(Duration::nanoseconds(nanos)).and_then(|at| at.checked_to_offset(offset));
        Deadline::new(at.expect("a year with four digits"), source)
    })
}

/// The instant and the source of a deadline.
fn said(deadline: &Deadline) -> (OffsetDateTime, String) {
    (deadline.at(), deadline.source().to_owned())
}

/// The deadline itself and the deadlines that it replaced.
fn all_of(deadline: &Deadline) -> BTreeSet<(OffsetDateTime, String)> {
    std::iter::once(deadline).chain(deadline.trace()).map(said).collect()
}

fn combined(deadlines: &[Deadline]) -> Deadline {
    deadlines.iter().cloned().reduce(Deadline::combined).expect("there is one")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn earliest_deadline_counts_and_all_are_kept_in_any_order(
        deadlines in vec(deadline(), 1..6),
        order in any::<prop::sample::Index>(),
    ) {
        let mut others = deadlines.clone();
        others.rotate_left(order.index(deadlines.len()));
        let earliest = deadlines.iter().map(Deadline::at).min();
        let expected: BTreeSet<_> = deadlines.iter().map(said).collect();
        for deadlines in [&deadlines, &others] {
            let combined = combined(deadlines);
            prop_assert_eq!(Some(combined.at()), earliest);
            prop_assert_eq!(&all_of(&combined), &expected);
            prop_assert!(combined.trace().iter().all(|entry| entry.trace().is_empty()));
        }
    }

    #[test]
    fn combining_deadlines_is_associative(a in deadline(), b in deadline(), c in deadline()) {
        let left = Deadline::combined(Deadline::combined(a.clone(), b.clone()), c.clone());
        let right = Deadline::combined(a.clone(), Deadline::combined(b, c));
        prop_assert_eq!((left.at(), left.source()), (right.at(), right.source()));
        prop_assert_eq!(all_of(&left), all_of(&right));
        let twice = Deadline::combined(left.clone(), left.clone());
        prop_assert_eq!((said(&twice), all_of(&twice)), (said(&left), all_of(&left)));
        let entries: BTreeSet<_> = left.trace().iter().map(said).collect();
        prop_assert_eq!(entries.len(), left.trace().len(), "each is kept once");
    }

    #[test]
    fn older_of_two_simultaneous_deadlines_counts(deadline in deadline()) {
        let newer = Deadline::new(deadline.at(), "newer");
        let combined = Deadline::combined(deadline.clone(), newer.clone());
        prop_assert_eq!(said(&combined), said(&deadline));
        prop_assert_eq!(combined.trace(), &[newer]);
    }

    #[test]
    fn context_keeps_deadlines_and_is_never_loosened(deadlines in vec(deadline(), 1..6), kind in select(&KINDS[..])) {
        let mut context = Context::default();
        let mut earliest = None;
        for deadline in &deadlines {
            context.tighten(kind, deadline.clone()).expect("what it has can be read");
            let kept = context.deadline(kind).expect("it can be read").expect("there is one");
            prop_assert!(kept.at() <= deadline.at() && earliest.is_none_or(|earliest| kept.at() <= earliest));
            earliest = Some(kept.at());
        }
        let text = serde_json::to_string(&context).expect("a context is JSON");
        let read: Context = serde_json::from_str(&text).expect("it was a context");
        prop_assert_eq!(read.deadline(kind).expect("it can be read"), Some(combined(&deadlines)));
        for other in KINDS.into_iter().filter(|other| *other != kind) {
            prop_assert_eq!(read.deadline(other).expect("it can be read"), None);
        }
    }

    #[test]
    fn passed_deadline_is_missed_under_its_name(
        happy in deadline(), rollback in deadline(), absolute in deadline(), now in deadline(), since in deadline(),
    ) {
        let mut context = Context::default();
        for (kind, deadline) in KINDS.into_iter().zip([&happy, &rollback, &absolute]) {
            context.tighten(kind, deadline.clone()).expect("what it has can be read");
        }
        for (direction, own, name) in [
            (Direction::Forward, &happy, "MissedHappyPathDeadline"),
            (Direction::Backward, &rollback, "MissedRollbackDeadline"),
        ] {
            prop_assert_eq!(context.give_up_at(direction), [own.at(), absolute.at()]);
            for since in [None, Some(since.at())] {
                let counts = |it: &Deadline| it.at() <= now.at() && since.is_none_or(|since| it.at() > since);
                let missed = context.missed_deadlines(direction, now.at(), since, "who asks");
                let missed: Vec<_> = missed.iter().map(|failure| (&*failure.kind, &*failure.source)).collect();
                let expected = [(own, name), (&absolute, "MissedAbsoluteDeadline")];
                let expected = expected.iter().filter(|(deadline, _)| counts(deadline));
                let expected: Vec<_> = expected.map(|(deadline, name)| (*name, deadline.source())).collect();
                prop_assert_eq!(missed, expected);
            }
        }
    }
}
